"""The client of Spark tasks is called as a Flight client is, and batches can be sent again."""

import inspect

import pyarrow as pa
import pytest

from penstock.flight.client import FlightClient
from penstock.spark.retrying_client import RetryingClient, _ReplayableBatches

SHARED = [
    name for name, _ in inspect.getmembers(RetryingClient, inspect.isfunction) if name[0] != "_"
]


@pytest.mark.parametrize("name", SHARED)
def test_a_method_has_the_arguments_and_defaults_of_a_flight_client(name: str) -> None:
    own = inspect.signature(getattr(RetryingClient, name)).parameters
    other = inspect.signature(getattr(FlightClient, name)).parameters
    assert [(each.name, each.kind, each.default) for each in own.values()] == [
        (each.name, each.kind, each.default) for each in other.values()
    ]


@pytest.mark.parametrize("read", [0, 1, 2, 3])
def test_batches_are_given_again_from_the_first(read: int) -> None:
    given = [pa.RecordBatch.from_pydict({"n": [number]}) for number in range(3)]
    with _ReplayableBatches(iter(given)) as batches:
        for _ in range(2):
            once = iter(batches)
            assert [next(once) for _ in range(read)] == given[:read]
        assert list(batches) == given
