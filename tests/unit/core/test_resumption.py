"""Subscriptions wait for their own client, for a while, in bounded number."""

from penstock.core.access import ANYONE, Principal
from penstock.core.audiences import Encoding
from penstock.core.resumption import Resumption
from penstock.core.sessions import Session
from penstock.core.timers import Timers
from penstock.protocols.herald import HERALD
from tests.support.fakes import FakeClock, RecordingLink


def session(
    name: str,
    *patterns: str,
    principal: Principal = ANYONE,
    number: int = 1,
    host: str = "192.0.2.1",
) -> Session:
    made = Session(
        number,
        encoding=Encoding(HERALD, "little"),
        link=RecordingLink(host=host),
        name=name,
        principal=principal,
    )
    made.subscriptions.update(dict.fromkeys(patterns))
    return made


def keep(resumption: Resumption, name: str, *patterns: str, number: int = 1) -> None:
    resumption.keep(session(name, *patterns, number=number), {each: {0: 7} for each in patterns})


def test_a_client_that_is_back_gets_its_subscriptions_once() -> None:
    resumption = Resumption(Timers(FakeClock()))
    keep(resumption, "a", "x", "y")
    assert resumption.take(session("b")) == {}
    assert resumption.take(session("a", principal=Principal("other"))) == {}
    assert resumption.take(session("a")) == {"x": {0: 7}, "y": {0: 7}}
    assert resumption.take(session("a")) == {}


def test_they_wait_no_longer_than_the_window() -> None:
    clock = FakeClock()
    timers = Timers(clock)
    resumption = Resumption(timers, seconds_max=10)
    keep(resumption, "a", "x")
    clock.seconds += 6
    keep(resumption, "a", "y")
    clock.seconds += 6
    timers.run_due()
    assert resumption.take(session("a")) == {"y": {0: 7}}
    keep(resumption, "a", "z")
    clock.seconds += 10
    timers.run_due()
    assert len(resumption) == 0


def test_the_oldest_makes_room_and_the_nameless_are_not_kept() -> None:
    resumption = Resumption(Timers(FakeClock()), clients_max=2)
    for name in "abc":
        keep(resumption, name, "x")
    assert [resumption.take(session(name)) for name in "abc"] == [{}, {"x": {0: 7}}, {"x": {0: 7}}]
    keep(resumption, "7", "x", number=7)
    keep(resumption, "d")
    assert len(resumption) == 0


def test_an_anonymous_client_resumes_from_its_own_address_only() -> None:
    resumption = Resumption(Timers(FakeClock()))
    keep(resumption, "a", "x")
    assert resumption.take(session("a", host="192.0.2.2")) == {}
    assert resumption.take(session("a")) == {"x": {0: 7}}


def test_a_principal_resumes_from_any_address_and_from_no_other_principal() -> None:
    resumption = Resumption(Timers(FakeClock()))
    plant = Principal("plant")
    resumption.keep(session("a", "x", principal=plant), {"x": {0: 7}})
    # A principal of the same name as the anonymous one is still another client.
    assert resumption.take(session("a", principal=Principal("plant", is_anonymous=True))) == {}
    assert resumption.take(session("a", principal=Principal("other"))) == {}
    assert resumption.take(session("a", principal=plant, host="192.0.2.2")) == {"x": {0: 7}}
