"""A client waits for a broker that is restarted, and nothing that was cut short counts."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.flight as pf
import pytest

from penstock.flight.client import FlightClient
from penstock.flight.errors import BadRequest, FlightFailed, NoAnswer, NotStaged
from penstock.flight.protocol import ReadRange, Stage, Staged
from penstock.limits import FLIGHT_KEPT_BYTES
from penstock.spark.retrying_client import RetryingClient
from tests.support.flight import rows, serve_tables, table
from tests.support.live import LiveBroker
from tests.support.served import Served, until


@pytest.fixture
def client(tmp_path: Path) -> Iterator[FlightClient]:
    with (
        LiveBroker(data=tmp_path) as live,
        FlightClient(serve_tables(live, tmp_path)) as found,
    ):
        yield found


def values(client: FlightClient) -> list[bytes]:
    return table(client, columns=["value"]).column("value").to_pylist()


# --- What is cut short


KILLED = """
import os, sys
import pyarrow as pa
import penstock.flight.client as c
batch = pa.record_batch({"topic": ["t"] * 100, "value": [bytes(8000)] * 100})
def batches():
    for _ in range(50):
        yield batch
    open(sys.argv[2], "w").close()
    sys.stdin.read()
c.FlightClient(sys.argv[1]).stage(batches(), writer="w", epoch=0, partition=0)
"""


def test_rows_of_a_client_that_is_killed_before_the_last_are_not_put_aside(
    client: FlightClient, tmp_path: Path
) -> None:
    sent = tmp_path / "sent"
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", KILLED, client.endpoint, str(sent)], stdin=subprocess.PIPE
    )
    until(sent.exists, "rows that are on their way")
    folder = tmp_path / "sinks" / "w"
    until(lambda: any(folder.glob("*.new")), "rows that arrive")
    process.kill()
    process.communicate()
    until(lambda: not any(folder.glob("*.new")), "the end of rows that are not whole")
    assert not any(folder.glob("*.arrows"))
    with pytest.raises(NotStaged):
        client.publish_epoch("w", 0, [0])


def test_rows_that_fail_in_the_middle_are_not_put_aside(client: FlightClient) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield rows([b"one"])
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        client.stage(failing(), writer="w", epoch=0, partition=0)
    with pytest.raises(NotStaged):
        client.publish_epoch("w", 0, [0])


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (None, "without a message of how many"),
        (msgspec.json.encode(Staged(3)), "2 came of 3"),
        (b"{", "the metadata of rows"),
    ],
)
def test_rows_that_are_not_counted_right_are_refused(
    client: FlightClient, told: bytes | None, problem: str
) -> None:
    with pytest.raises(BadRequest, match=problem):
        put(client, rows([b"one", b"two"]), told)
    with pytest.raises(NotStaged):
        client.publish_epoch("w", 0, [0])


def put(client: FlightClient, batch: pa.RecordBatch, told: bytes | None) -> None:
    """Send rows as any client of Flight could."""
    descriptor = pf.FlightDescriptor.for_command(msgspec.json.encode(Stage("w", 0, 0)))
    stream, answers = client._client.do_put(descriptor, batch.schema)
    with client._broker_errors():
        stream.write_batch(batch)
        if told is not None:
            stream.write_metadata(pa.py_buffer(told))
        stream.done_writing()
        answers.read()
        stream.close()


def test_an_attempt_that_comes_late_does_not_replace_the_rows_of_another(
    client: FlightClient,
) -> None:
    client.stage([rows([b"good"])], writer="w", epoch=0, partition=0, token="a1")  # noqa: S106
    client.stage([rows([b"late"])], writer="w", epoch=0, partition=0, token="b2")  # noqa: S106
    client.stage([rows([b"more"])], writer="w", epoch=0, partition=1, token="c3")  # noqa: S106
    with pytest.raises(NotStaged, match="partition 0"):
        client.publish_epoch("w", 0, [0, 1])
    with pytest.raises(NotStaged, match="partition 1"):
        client.publish_epoch("w", 0, [0, 1], tokens=["a1", "b2"])
    with pytest.raises(BadRequest, match="one for each partition"):
        client.publish_epoch("w", 0, [0, 1], tokens=["a1"])
    with pytest.raises(BadRequest, match="letters and digits"):
        client.publish_epoch("w", 0, [0], tokens=["../a"])
    assert client.publish_epoch("w", 0, [0, 1], tokens=["a1", "c3"]).rows == 2
    assert client.publish_epoch("w", 0, [0, 1], tokens=["b2", "c3"]).again
    assert values(client) == [b"good", b"more"]


# --- A broker that goes away


def test_ranges_and_epochs_go_on_when_the_broker_is_back(tmp_path: Path) -> None:
    sent = [b"%05d" % number + bytes(4000) for number in range(FLIGHT_KEPT_BYTES // 4000 + 2000)]
    parts = [rows(sent[start : start + 500]) for start in range(0, len(sent), 500)]

    def interrupted(served: Served, *, at: int) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(parts):
            if number == at:
                served.restart()
            yield batch

    with Served(tmp_path) as served, RetryingClient(served.endpoint) as client:
        late = interrupted(served, at=len(parts) - 1)
        assert client.stage(late, writer="w", epoch=0, partition=0) == len(sent)
        back = threading.Thread(target=served.restart)
        back.start()
        assert client.publish_epoch("w", 0, [0]).rows == len(sent)
        back.join()
        assert client.publish_epoch("w", 0, [0]).again
        for columns in (["value"], ["value", "offset"]):
            found: list[bytes] = []
            for number, batch in enumerate(client.read(ReadRange(0, len(sent), columns=columns))):
                if number == 1:
                    served.restart()
                found += batch.column("value").to_pylist()
            assert found == sent
        with FlightClient(served.endpoint) as other:
            assert other.bounds()[0].end == len(sent)


def test_a_broker_that_does_not_come_back_is_an_error_with_what_to_look_at(tmp_path: Path) -> None:
    with Served(tmp_path) as served, RetryingClient(served.endpoint, seconds_max=1.0) as client:
        client.bounds()
        served.kill()
        begun = time.monotonic()
        with pytest.raises(NoAnswer, match=r"waited for 1 seconds; .*is a broker running there"):
            client.bounds()
        assert 1.0 <= time.monotonic() - begun < 5.0


def test_a_broker_that_never_answered_is_not_waited_for() -> None:
    begun = time.monotonic()
    with (
        RetryingClient("127.0.0.1:1", expected=False) as client,
        pytest.raises(FlightFailed, match=r"no answer by Arrow Flight from 127\.0\.0\.1:1"),
    ):
        client.bounds()
    assert time.monotonic() - begun < 5.0


def test_what_is_wrong_is_not_tried_again(client: FlightClient) -> None:
    begun = time.monotonic()
    with RetryingClient(client.endpoint) as client_again:
        with pytest.raises(BadRequest):
            client_again.publish_epoch("../w", 0, [0])
        with pytest.raises(NotStaged):
            client_again.publish_epoch("w", 0, [0])
    assert time.monotonic() - begun < 5.0


def test_what_a_group_lost_is_told(client: FlightClient) -> None:
    client.commit_group("readers", {0: 10}, lost=4)
    client.commit_group("readers", {0: 20})
    client.commit_group("readers", {0: 25}, lost=3)
    (found,) = client.groups()["readers"].values()
    assert (found.offset, found.lost) == (25, 7)
