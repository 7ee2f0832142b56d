"""Answers in the order of the requests, whatever they wait for; and who does not read them."""

import itertools
from collections.abc import Iterator

import pytest

from penstock.conform.rheos.encoding import (
    ALICE,
    BOB,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
    offset_of,
)
from penstock.limits import LINGER_SECONDS_MAX
from penstock.model import Durability
from tests.support.failing_log import Desk


class Table(Desk):
    """A broker without sockets, and one connection to it."""

    def __init__(self, rheos: Rheos) -> None:
        super().__init__()
        self.rheos = rheos

    def ask(self, *requests: tuple[int, bytes]) -> None:
        self.send(b"".join(self.rheos.request(*one) for one in requests))

    def make(self, *names: bytes) -> None:
        """Make topics and forget the answers."""
        self.ask(*((CREATE, name) for name in names))
        self.commit()
        self.read()

    def answers(self) -> Iterator[tuple[int, int]]:
        """Code and offset of each acknowledgment that was written."""
        data = self.read()
        size = self.rheos.ack_bytes
        assert len(data) % size == 0
        for start in range(0, len(data), size):
            packet = data[start : start + size]
            assert packet[0] == 0xAC
            if self.rheos.version == 1:
                yield packet[17], offset_of(packet[1:17])
            else:
                yield packet[1], offset_of(packet[2:18])


@pytest.fixture
def table(rheos: Rheos) -> Table:
    return Table(rheos)


def test_a_publish_is_answered_when_its_message_is_safe_and_not_before(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"), (PUBLISH, b"a"))
    table.ask((PUBLISH, b"a"))
    assert list(table.answers()) == []
    table.write_only()
    assert list(table.answers()) == []
    table.commit(1)
    assert list(table.answers()) == [(SUCCESS, 0), (SUCCESS, 1)]
    table.commit(1)
    assert list(table.answers()) == [(SUCCESS, 2)]


def test_what_is_known_at_once_waits_behind_what_is_not(table: Table) -> None:
    table.ask((CREATE, b"a"), (PUBLISH, b"a"), (PUBLISH, b"b"), (CREATE, b"b"), (PUBLISH, b"b"))
    table.ask((SUBSCRIBE, b"c"), (SUBSCRIBE, b"#"))
    assert list(table.answers()) == []
    table.commit(1)
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE)]
    table.commit(1)
    assert list(table.answers()) == [(SUCCESS, 0), (FAILED, NO_MESSAGE)]
    table.commit(1)
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE)]
    table.commit(1)
    assert list(table.answers()) == [
        (SUCCESS, 1),
        (FAILED, NO_MESSAGE),
        (SUCCESS, NO_MESSAGE),
    ]
    table.ask((CREATE, b"a"))
    assert list(table.answers()) == [(FAILED, NO_MESSAGE)]


def test_who_does_not_read_its_answers_is_not_read(table: Table) -> None:
    table.make(b"a")
    table.link.congested = True
    table.ask((PUBLISH, b"a"))
    assert table.link.paused
    table.link.congested = False
    table.link.handler.drained()
    assert not table.link.paused
    table.ask((PUBLISH, b"a"))
    table.commit()
    assert [code for code, _ in table.answers()] == [SUCCESS] * 2


def test_a_client_that_is_gone_is_owed_nothing(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"))
    table.link.handler.lost("closed")
    table.commit()
    assert list(table.answers()) == []
    assert len(table.broker.sessions) == 0


def test_every_order_of_requests_is_answered_in_that_order(rheos: Rheos) -> None:
    steps = {
        "publish": ((PUBLISH, b"a"), SUCCESS),
        "unknown": ((PUBLISH, b"x"), FAILED),
        "again": ((CREATE, b"a"), FAILED),
        "follow": ((SUBSCRIBE, b"never/+"), SUCCESS),
        "more": ((PUBLISH, b"a"), SUCCESS),
    }
    for order in itertools.permutations(steps):
        table = Table(rheos)
        table.ask((CREATE, b"a"), *(steps[one][0] for one in order))
        table.commit()
        assert [code for code, _ in table.answers()] == [
            SUCCESS,
            *(steps[one][1] for one in order),
        ]


# --- A log that fails ---------------------------------------------------------------------------


def test_messages_that_the_log_does_not_take_fail_and_reach_nobody(table: Table) -> None:
    table.make(b"a")
    table.ask((SUBSCRIBE, b"a"))
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE)]
    table.log.full = True
    table.ask((PUBLISH, b"a"), (PUBLISH, b"a"), (PUBLISH, b"x"))
    assert list(table.answers()) == [(FAILED, NO_MESSAGE)] * 3
    table.log.full = False
    table.ask((SUBSCRIBE, b"never/+"), (PUBLISH, b"a"))
    assert table.log.next_offset == 1


def test_refusals_stand_behind_the_answers_before_them(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"))
    table.log.full = True
    table.ask((PUBLISH, b"a"), (PUBLISH, b"a"))
    table.log.full = False
    table.ask((PUBLISH, b"a"))
    assert list(table.answers()) == []
    table.commit()
    assert list(table.answers()) == [
        (SUCCESS, 0),
        (FAILED, NO_MESSAGE),
        (FAILED, NO_MESSAGE),
        (SUCCESS, 1),
    ]


def test_messages_that_are_lost_fail_each_and_those_before_do_not(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"))
    table.commit()
    table.ask((PUBLISH, b"a"), (PUBLISH, b"a"), (PUBLISH, b"a"), (SUBSCRIBE, b"never/+"))
    table.write_only()
    table.fail()
    table.ask((PUBLISH, b"a"))
    table.commit()
    assert list(table.answers()) == [
        (SUCCESS, 0),
        *[(FAILED, NO_MESSAGE)] * 3,
        (SUCCESS, NO_MESSAGE),
        (SUCCESS, 4),
    ]


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_topic_that_could_not_be_kept_can_be_made_again(table: Table, when: str) -> None:
    table.log.full = when == "at once"
    table.ask((CREATE, b"a"))
    table.fail()
    assert list(table.answers()) == [(FAILED, NO_MESSAGE)]
    table.log.full = False
    table.ask((CREATE, b"a"), (CREATE, b"a"))
    table.commit()
    assert list(table.answers()) == [(SUCCESS, NO_MESSAGE), (FAILED, NO_MESSAGE)]
    assert table.log.topics[-1] == ("a", ALICE)


def test_a_topic_is_kept_with_who_made_it(table: Table, rheos: Rheos) -> None:
    table.send(rheos.request(CREATE, b"a", client=BOB) + rheos.request(CREATE, b"b\xff"))
    table.commit()
    assert [code for code, _ in table.answers()] == [SUCCESS] * 2
    assert table.log.topics == [("a", BOB), ("b%FF", ALICE)]
    assert table.log.next_offset == 0


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.OS])
def test_a_weaker_durability_waits_for_less(table: Table, durability: Durability) -> None:
    table.make(b"a")
    table.log.durability = durability
    table.ask((PUBLISH, b"a"))
    if durability is Durability.OS:
        assert list(table.answers()) == []
        table.write_only()
    assert list(table.answers()) == [(SUCCESS, 0)]


# --- A client that has said all it has to say ---------------------------------------------------


def test_who_ends_is_closed_behind_the_answers_that_wait(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"), (PUBLISH, b"x"))
    table.link.handler.ended()
    assert not table.link.closed
    table.commit()
    assert list(table.answers()) == [(SUCCESS, 0), (FAILED, NO_MESSAGE)]
    assert table.link.closed


def test_who_ends_learns_of_a_failure_too(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"))
    table.link.handler.ended()
    table.fail()
    assert list(table.answers()) == [(FAILED, NO_MESSAGE)]
    assert table.link.closed


def test_who_ends_and_is_owed_nothing_is_closed_at_once(table: Table) -> None:
    table.make(b"a")
    table.link.handler.ended()
    assert table.link.closed


def test_answers_that_never_come_are_not_waited_for_without_end(table: Table) -> None:
    table.make(b"a")
    table.ask((PUBLISH, b"a"))
    table.link.handler.ended()
    table.move_clock(LINGER_SECONDS_MAX - 1)
    assert not table.link.closed
    table.move_clock(2)
    assert table.link.closed


def test_who_has_said_nothing_yet_is_closed_when_it_ends(table: Table) -> None:
    assert table.link.handler.received(memoryview(b"\xfa")) == 0
    table.link.handler.ended()
    assert table.link.closed
