"""Subscriptions wait for their own client, for a while, in bounded number."""

from penstock.core.access import ANYONE, Principal
from penstock.core.resumption import Resumption
from penstock.core.routing import Encoding
from penstock.core.sessions import Session
from penstock.core.timers import Timers
from penstock.protocols.herald import HERALD
from tests.support.fakes import FakeClock, RecordingLink


def session(name: str, *patterns: str, principal: Principal = ANYONE, number: int = 1) -> Session:
    made = Session(
        number,
        encoding=Encoding(HERALD, "little"),
        link=RecordingLink(),
        name=name,
        principal=principal,
    )
    made.subscriptions.update(dict.fromkeys(patterns))
    return made


def keep(resumption: Resumption, name: str, *patterns: str, number: int = 1) -> None:
    resumption.keep(session(name, *patterns, number=number), dict.fromkeys(patterns, 7))


def test_a_client_that_is_back_gets_its_subscriptions_once() -> None:
    resumption = Resumption(Timers(FakeClock()))
    keep(resumption, "a", "x", "y")
    assert resumption.take("anyone", "b") == {}
    assert resumption.take("other", "a") == {}
    assert resumption.take("anyone", "a") == {"x": 7, "y": 7}
    assert resumption.take("anyone", "a") == {}


def test_they_wait_no_longer_than_the_window() -> None:
    clock = FakeClock()
    timers = Timers(clock)
    resumption = Resumption(timers, seconds_max=10)
    keep(resumption, "a", "x")
    clock.seconds += 6
    keep(resumption, "a", "y")
    clock.seconds += 6
    timers.run_due()
    assert resumption.take("anyone", "a") == {"y": 7}
    keep(resumption, "a", "z")
    clock.seconds += 10
    timers.run_due()
    assert len(resumption) == 0


def test_the_oldest_makes_room_and_the_nameless_are_not_kept() -> None:
    resumption = Resumption(Timers(FakeClock()), clients_max=2)
    for name in "abc":
        keep(resumption, name, "x")
    assert [resumption.take("anyone", name) for name in "abc"] == [{}, {"x": 7}, {"x": 7}]
    keep(resumption, "7", "x", number=7)
    keep(resumption, "d")
    assert len(resumption) == 0
