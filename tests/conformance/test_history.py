"""Replay in every protocol: where a subscription starts, and how it is refused in its words."""

from typing import Any

import pytest

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.history import (
    NAMED,
    FleximqLine,
    HeraldLine,
    History,
    LamaLine,
    RheosLine,
)

CHANNEL_NOT_FOUND = 2

lines = pytest.mark.parametrize("line", NAMED)


@pytest.fixture
def history() -> History:
    """Six messages: the even ones to `a/b`, the odd ones to `a/c`."""
    made = History()
    made.publish(*["a/b", "a/c"] * 3)
    return made


# --- Protocols with names -----------------------------------------------------------------------


@lines
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", []),
        ("a/b@earliest", [0, 2, 4]),
        ("a/+@earliest", [0, 1, 2, 3, 4, 5]),
        ("#@#3", [3, 4, 5]),
        ("a/c@#0", [1, 3, 5]),
        ("a/b@#6", []),
        ("a/b@-1.5h", [0, 2, 4]),
        ("a/b@2001-01-01T00:00:00Z", [0, 2, 4]),
        ("a/b@2101-01-01", []),
    ],
)
def test_a_subscription_starts_where_it_says_and_goes_on_live(
    history: History, line: Any, text: str, expected: list[int]
) -> None:
    client = line(history)
    assert client.subscribe(text)
    assert client.marks() == expected
    history.publish("a/b", "a/c")
    live = {"a/b": [6], "a/c": [7]}
    assert client.marks() == live.get(text.partition("@")[0], [6, 7])


@lines
@pytest.mark.parametrize("text", ["a/b@#7", "a/b@#1", "+@#9999999999999999999"])
def test_a_place_that_is_not_there_is_refused_and_nothing_is_subscribed(
    history: History, line: Any, text: str
) -> None:
    history.log.forget(2)
    client = line(history)
    assert not client.subscribe(text)
    history.publish("a/b", "a/c")
    assert client.marks() == []
    assert client.subscribe("a/b@#2")
    assert client.marks() == [2, 4, 6]


@lines
def test_an_at_that_is_no_place_belongs_to_the_name(history: History, line: Any) -> None:
    history.publish("case@home", "case@2026-W01")
    client = line(history)
    assert client.subscribe("case@home")
    assert client.subscribe("case@2026-W01@earliest")
    assert client.marks() == [7]
    history.publish("case@home")
    assert client.marks() == [8]


@lines
def test_a_second_subscription_with_another_place_is_refused_and_changes_nothing(
    history: History, line: Any
) -> None:
    client = line(history)
    assert client.subscribe("a/b@#4")
    assert client.marks() == [4]
    assert not client.subscribe("a/b@earliest")
    assert client.subscribe("a/b")
    history.publish("a/b")
    assert client.marks() == [6]


@lines
def test_rules_are_of_the_pattern_without_its_place(line: Any) -> None:
    rules = [Rule(allow=True, actions=frozenset({Action.SUBSCRIBE}), pattern="open/+")]
    options = GatewayOptions(anonymous=Principal("guest", rules, default=False))
    history = History()
    history.publish("open/a", "secret/a")
    client = line(history, options)
    assert not client.subscribe("secret/a@earliest")
    assert client.subscribe("open/a@earliest")
    assert client.marks() == [0]


@lines
def test_middleware_is_asked_about_the_pattern_without_its_place(
    history: History, line: Any
) -> None:
    middleware = LamaLine(history)
    middleware.send(lama.register(1, b"watch", lama.SUBSCRIBED, strategy=lama.TELL))
    assert middleware.link.read() == lama.answer(1)
    client = line(history)
    assert client.subscribe("a/b@#2")
    call = middleware.link.read()
    assert lama.counted(b"a/b") in call
    assert b"a/b@" not in call
    assert client.marks() == [2, 4]


@pytest.mark.parametrize("line", [FleximqLine, LamaLine])
@pytest.mark.parametrize("text", ["a/b", "a/b@earliest", "a/b@#5"])
def test_a_subscription_ends_by_its_pattern_whatever_place_is_named(
    history: History, line: Any, text: str
) -> None:
    client = line(history)
    assert client.subscribe("a/b@earliest")
    client.marks()
    client.unsubscribe(text)
    history.publish("a/b")
    assert client.marks() == []


@pytest.mark.parametrize("line", NAMED[:2])
def test_rheos_knows_a_topic_by_its_name_without_the_place(history: History, line: Any) -> None:
    client: RheosLine = line(history)
    assert not client.subscribe("unknown@earliest")
    client.create("unknown")
    assert client.subscribe("unknown@earliest")


# --- herald -------------------------------------------------------------------------------------


def test_a_channel_starts_where_its_listener_says() -> None:
    options = GatewayOptions(herald_replay={7: "@earliest", 9: "@#3"})
    history = History(options)
    history.publish(*["channel/7", "channel/8", "channel/9"] * 2)
    client = HeraldLine(history, channels=b"\x07\x08\x09")
    assert client.marks() == [0, 3, 5]
    history.publish("channel/7", "channel/8", "channel/9")
    assert client.marks() == [6, 7, 8]
    client.send(herald.unsubscribe(7) + herald.subscribe(7))
    assert client.marks() == [0, 3, 6]


def test_a_channel_whose_place_is_not_there_is_not_found() -> None:
    options = GatewayOptions(herald_replay={7: "@#5"})
    history = History(options)
    client = HeraldLine(history, channels=b"\x07\x08")
    assert client.codes() == [CHANNEL_NOT_FOUND]
    history.publish("channel/7", "channel/8")
    assert client.marks() == [1]


def test_a_client_that_was_cut_off_gets_what_it_missed_and_no_more() -> None:
    history = History()
    client = HeraldLine(history, channels=b"\x07\x09")
    history.publish("channel/7", "channel/8")
    assert client.marks() == [0]
    client.link.handler.lost("reset")
    history.publish("channel/7", "channel/8", "channel/9")
    client = HeraldLine(history, channels=b"")
    assert client.marks() == [2, 4]
    history.publish("channel/7", "channel/8")
    assert client.marks() == [5]
    client.send(herald.unsubscribe(7) + herald.subscribe(7))
    assert client.marks() == []


def test_what_was_missed_is_once_for_who_comes_back_with_the_same_channel_and_a_place() -> None:
    history = History(GatewayOptions(herald_replay={7: "@earliest"}))
    history.publish("channel/7")
    client = HeraldLine(history, channels=b"\x07")
    assert client.marks() == [0]
    client.link.handler.lost("reset")
    history.publish("channel/7")
    client = HeraldLine(history, channels=b"\x07")
    assert client.marks() == [1]


def test_nobody_else_gets_what_a_client_missed() -> None:
    history = History()
    client = HeraldLine(history, channels=b"\x07")
    client.link.handler.lost("reset")
    history.publish("channel/7")
    other = HeraldLine(history, name=b"t", channels=b"\x07")
    assert other.marks() == []


@pytest.mark.parametrize("how", ["goodbye", "too late"])
def test_who_said_goodbye_or_comes_too_late_has_missed_nothing(how: str) -> None:
    history = History()
    client = HeraldLine(history, channels=b"\x07")
    if how == "goodbye":
        client.send(herald.DISCONNECT)
    client.link.handler.lost("closed")
    history.publish("channel/7")
    if how == "too late":
        history.clock.seconds += history.broker.settings.resume_seconds_max + 1
        history.broker.timers.run_due()
    client = HeraldLine(history, channels=b"\x07")
    assert client.marks() == []
