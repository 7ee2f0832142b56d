"""Requests to Kafka are tried again while a leader moves, and fail where that would not help."""

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.storage.kafka.client import Connection, RecordReader
from penstock.storage.kafka.closing import Closing
from penstock.storage.kafka.options import KafkaOptions

MOVING = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    # The new leader does not know yet how far the others are.
    KafkaError.OFFSET_NOT_AVAILABLE,
    # librdkafka has dropped the connection to a broker with a request on it.
    KafkaError._DESTROY_BROKER,
    # All brokers restart.
    KafkaError._ALL_BROKERS_DOWN,
]


class RefusingConsumer:
    """A consumer whose first answers are errors."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)

    def get_watermark_offsets(self, _: TopicPartition, *, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        if self._codes:
            raise KafkaException(KafkaError(self._codes.pop(0)))
        return 3, 5

    def close(self) -> None:
        """Disconnect."""


@pytest.fixture
def asking() -> Callable[..., tuple[int, int]]:
    def ask(*codes: int) -> tuple[int, int]:
        reader = RecordReader(Connection(KafkaOptions("127.0.0.1:1", "log")))
        reader.close()
        reader._consumer = RefusingConsumer(*codes)  # type: ignore[assignment]
        return reader.bounds("log", 0)

    return ask


@pytest.mark.parametrize("code", MOVING)
def test_bounds_are_asked_for_again_while_a_leader_moves(
    code: int, asking: Callable[..., tuple[int, int]]
) -> None:
    assert asking(code, code) == (3, 5)


def test_bounds_that_kafka_refuses_are_an_error(asking: Callable[..., tuple[int, int]]) -> None:
    with pytest.raises(OSError, match="authorization"):
        asking(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def test_a_client_is_closed_later_if_the_machine_has_no_thread_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closing, closed = Closing("kafka://"), threading.Event()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        closing.close("reader", closed.set)
        closing.report()
        assert not closing.wait(0.0)
    assert not closed.is_set()
    closing.report()
    assert closing.wait(10.0)
    assert closed.is_set()
