"""Answers in the order of the requests, whatever they wait for; and who does not read them."""

import itertools
from collections.abc import Iterator

import pytest

from penstock._kernels.batch import Batch
from penstock.core.broker import Broker
from penstock.gateway.front_door import FrontDoor
from penstock.gateway.options import GatewayOptions
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.rheos_bytes import (
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
    offset_of,
)


class SlowLog:
    """See ports.LogWriter; nothing is durable until a test says so."""

    log_id = 7
    partition = 0

    def __init__(self) -> None:
        self.durable_offset = 0
        self._next = 0

    def append(self, batch: Batch) -> int:
        first, self._next = self._next, self._next + len(batch)
        return first

    def append_one(self) -> int:
        self._next += 1
        return self._next - 1


class Table:
    """A broker without sockets, and one connection to it."""

    def __init__(self, rheos: Rheos) -> None:
        self.rheos = rheos
        self.log = SlowLog()
        self.broker = Broker(log=self.log, clock=FakeClock())
        self.link = RecordingLink()
        self.door = FrontDoor(self.broker, self.link, GatewayOptions())

    def send(self, *requests: tuple[int, bytes]) -> int:
        data = b"".join(self.rheos.request(*one) for one in requests)
        return self.door.received(memoryview(data))

    def answers(self) -> Iterator[tuple[int, int]]:
        """Code and offset of each acknowledgment that was written."""
        data = self.link.read()
        size = self.rheos.ack_bytes
        for start in range(0, len(data), size):
            packet = data[start : start + size]
            assert packet[0] == 0xAC
            if self.rheos.version == 1:
                yield packet[17], offset_of(packet[1:17])
            else:
                yield packet[1], offset_of(packet[2:18])

    def make_durable(self, offset: int) -> None:
        self.log.durable_offset = offset
        self.broker.became_durable()


@pytest.fixture
def table(rheos: Rheos) -> Table:
    return Table(rheos)


def test_01_a_publish_is_answered_when_its_message_is_safe_and_not_before(table: Table) -> None:
    table.send((CREATE, b"a"))
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE)]
    table.send((PUBLISH, b"a"), (PUBLISH, b"a"))
    assert list(table.answers()) == []
    table.make_durable(1)
    assert list(table.answers()) == []
    table.make_durable(2)
    assert list(table.answers()) == [(SUCCESS, 0), (SUCCESS, 1)]


def test_02_what_is_known_at_once_waits_behind_what_is_not(table: Table) -> None:
    table.send((CREATE, b"a"), (PUBLISH, b"a"), (PUBLISH, b"b"), (CREATE, b"b"), (PUBLISH, b"b"))
    table.send((SUBSCRIBE, b"c"), (SUBSCRIBE, b"#"))
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE)]
    table.make_durable(1)
    assert list(table.answers()) == [(SUCCESS, 0), (FAILED, NO_MESSAGE), (SUCCESS, NO_MESSAGE)]
    table.make_durable(2)
    assert list(table.answers()) == [
        (SUCCESS, 1),
        (FAILED, NO_MESSAGE),
        (SUCCESS, NO_MESSAGE),
    ]
    table.send((CREATE, b"a"))
    assert list(table.answers()) == [(FAILED, NO_MESSAGE)]


def test_03_who_does_not_read_its_answers_is_not_read(table: Table) -> None:
    table.send((CREATE, b"a"))
    table.link.congested = True
    table.send((PUBLISH, b"a"))
    assert table.link.paused
    table.link.congested = False
    table.door.drained()
    assert not table.link.paused
    table.send((PUBLISH, b"a"))
    table.make_durable(2)
    assert [code for code, _ in table.answers()] == [SUCCESS] * 3


def test_04_a_client_that_is_gone_is_owed_nothing(table: Table) -> None:
    table.send((CREATE, b"a"), (PUBLISH, b"a"))
    table.link.read()
    table.door.lost("closed")
    table.make_durable(1)
    assert list(table.answers()) == []
    assert len(table.broker.sessions) == 0


def test_05_every_order_of_requests_is_answered_in_that_order(rheos: Rheos) -> None:
    steps = {
        "publish": ((PUBLISH, b"a"), SUCCESS),
        "unknown": ((PUBLISH, b"x"), FAILED),
        "again": ((CREATE, b"a"), FAILED),
        "follow": ((SUBSCRIBE, b"never/+"), SUCCESS),
        "more": ((PUBLISH, b"a"), SUCCESS),
    }
    for order in itertools.permutations(steps):
        table = Table(rheos)
        table.send((CREATE, b"a"), *(steps[one][0] for one in order))
        table.make_durable(2)
        assert [code for code, _ in table.answers()] == [
            SUCCESS,
            *(steps[one][1] for one in order),
        ]
