"""The part of the event loop's time for a crowd, while others use the loop."""

from collections.abc import Callable

import pytest

from penstock.core.broker import Broker
from penstock.core.crowd import CrowdTime
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.core.turns import LoopTurn, Source
from penstock.gateway.base import Gateway
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.limits import CROWD_SECONDS_MAX, CROWD_SHARE, CROWD_WAIT_SECONDS_MIN
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from tests.support import lamamq_bytes as lm
from tests.support.fakes import FakeClock, RecordingLink


def test_time_is_used_up_and_comes_back() -> None:
    crowd = CrowdTime(share=0.25, seconds_max=0.5, debt_seconds_max=2.0)
    assert crowd.wait_seconds(10.0) == 0.0
    crowd.spend(10.0, 1.0)
    assert crowd.wait_seconds(10.0) == pytest.approx(2.0), "half a second too much, four times"
    assert crowd.wait_seconds(11.0) == pytest.approx(1.0)
    assert crowd.wait_seconds(12.1) == 0.0


def test_saved_time_and_debt_are_limited() -> None:
    crowd = CrowdTime(share=0.5, seconds_max=0.1, debt_seconds_max=1.0)
    crowd.spend(10.0, 60.0)
    assert crowd.wait_seconds(10.0) == pytest.approx(2.0)
    assert crowd.wait_seconds(1000.0) == 0.0
    crowd.spend(1000.0, 0.2)
    assert crowd.wait_seconds(1000.0) == pytest.approx(0.2), "an idle time saves 0.1 s"


def shared_turn() -> tuple[LoopTurn, Source, Source]:
    """Return a turn of a loop that two principals use, a source of each, the second nameless."""
    turn = LoopTurn()
    turn.schedule = lambda _end: None
    plant, stranger = turn.source("10.0.0.1", "plant"), turn.source("10.0.1.1")
    turn.count(plant, 5.0, 0.002)
    turn.count(stranger, 5.0, 0.002)
    assert not turn.is_shared, "it is not known yet"
    assert not turn.defers(5.0, 10, source=plant)
    assert turn.is_shared
    return turn, plant, stranger


def test_clients_without_credentials_wait_when_the_time_of_the_crowd_is_used_up() -> None:
    turn, plant, stranger = shared_turn()
    turn.end()
    assert not turn.defers(5.01, 10, source=stranger)
    turn.count(stranger, 5.01, 2 * CROWD_SECONDS_MAX)
    turn.end()
    assert turn.defers(5.01, 10, source=stranger), "though this turn has just begun"
    assert not turn.defers(5.01, 10, source=plant)
    assert turn.wait_seconds(5.01, plant) == 0.0
    assert turn.wait_seconds(5.01, stranger) == pytest.approx(CROWD_SECONDS_MAX / CROWD_SHARE)
    assert not turn.defers(5.02, 10, source=stranger)


def test_a_principal_that_used_more_than_its_part_is_of_the_crowd() -> None:
    turn, plant, _ = shared_turn()
    assert not turn.is_crowd(plant, 5.0)
    turn.count(plant, 5.0, 0.5)
    assert turn.is_crowd(plant, 5.0)
    assert not turn.is_crowd(plant, 7.0), "it used little since"


def test_a_principal_alone_has_the_whole_loop() -> None:
    turn = LoopTurn()
    turn.schedule = lambda _end: None
    alone = turn.source("10.0.0.1")
    for step in range(100):
        now = 5.0 + step / 100
        assert not turn.defers(now, 10, source=alone)
        turn.count(alone, now, 0.01)
        turn.end()
    assert not turn.is_shared
    assert turn.wait_seconds(6.0, alone) == 0.0
    assert turn.wait_seconds(6.0) == 0.0


def test_the_input_of_the_crowd_waits_while_that_of_others_is_taken() -> None:
    turn, plant, stranger = shared_turn()
    clock = FakeClock()
    clock.seconds = 5.0
    slices = Slices(Timers(clock), clock, turn=turn)
    soon: list[Callable[[], None]] = []
    later: list[tuple[float, Callable[[], None]]] = []
    slices.schedule = soon.append
    slices.schedule_after = lambda seconds, run: later.append((seconds, run))
    turn.count(stranger, 5.0, 2 * CROWD_SECONDS_MAX)
    taken: list[str] = []
    slices.later(lambda: taken.append("stranger"), stranger)
    slices.later(lambda: taken.append("plant"), plant)
    slices.add(iter([None]))
    soon.pop()()
    assert taken == ["plant"]
    assert not soon, "the loop sleeps meanwhile"
    [(seconds, waited)] = later
    assert seconds >= CROWD_WAIT_SECONDS_MIN
    slices.later(lambda: taken.append("plant again"), plant)
    soon.pop()()
    assert taken == ["plant", "plant again"]
    assert len(later) == 1, "one pause is enough"
    clock.seconds += seconds
    waited()
    soon.pop()()
    assert taken == ["plant", "plant again", "stranger"]
    while soon:
        soon.pop()()
    assert len(slices) == 0


def test_input_that_cannot_be_offered_again_does_not_wait() -> None:
    clock = FakeClock()
    clock.seconds = 5.0
    broker = Broker(log=MemoryLog(), clock=clock)
    broker.turn.schedule = lambda _end: None
    stranger, plant = broker.turn.source(""), broker.turn.source("10.0.0.1", "plant")
    for source in (stranger, plant):
        broker.turn.count(source, 5.0, 0.002)
    broker.turn.defers(5.0, 0)
    broker.turn.count(stranger, 5.0, 2 * CROWD_SECONDS_MAX)
    options = GatewayOptions(protocol=LAMAMQ, order="big")
    hello = memoryview(lm.authentication(b"c"))
    links = [RecordingLink(), RecordingLink()]
    waiting, ended = (handler_for(broker, link, options) for link in links)
    assert waiting.received(hello) == 0
    assert links[0].paused
    assert isinstance(ended, Gateway)
    ended.at_once(lambda: ended.received(hello))
    assert links[1].read() == lm.OFFER
