"""Rules decide; decisions are cached, bounded, and forgotten when rules change."""

import dataclasses
import time

import pytest

from penstock.core import access
from penstock.core.access import (
    ANYONE,
    EVERYTHING,
    Action,
    Principal,
    Rule,
    authorize,
    authorize_anywhere,
    is_allowed,
    is_allowed_anywhere,
    path_name,
)
from penstock.errors import InvalidPattern, NotAllowed
from penstock.limits import ACCESS_DECISIONS_MAX, ACCESS_NAME_CHARACTERS_MAX

OTHERS = [action for action in Action if action is not Action.ADMINISTER]


def rule(verdict: str, pattern: str, *actions: Action) -> Rule:
    return Rule(allow=verdict == "allow", actions=frozenset(actions or Action), pattern=pattern)


def test_without_rules_the_default_decides_all_but_administer() -> None:
    for default in (True, False):
        principal = Principal("p", default=default)
        assert all(is_allowed(principal, action, "a/b") is default for action in OTHERS)
        assert not is_allowed(principal, Action.ADMINISTER, "clients")
    assert is_allowed(ANYONE, Action.ADMINISTER, "clients")
    assert not is_allowed(Principal("p", [rule("deny", "a")]), Action.ADMINISTER, "clients")


@pytest.mark.parametrize("action", Action)
def test_the_first_rule_that_matches_decides(action: Action) -> None:
    rules = [rule("deny", "a/secret"), rule("allow", "a/#", action), rule("deny", "#")]
    principal = Principal("p", rules)
    assert is_allowed(principal, action, "a/b")
    assert not is_allowed(principal, action, "a/secret")
    assert not is_allowed(principal, action, "b")
    other = next(each for each in Action if each is not action)
    assert not is_allowed(principal, other, "a/b")


@pytest.mark.parametrize("action", [each for each in Action if each is not Action.PUBLISH])
def test_many_names_need_a_rule_that_covers_all_and_none_that_denies_any(action: Action) -> None:
    allowed = Principal("p", [rule("allow", "a/+", action)], default=False)
    assert is_allowed(allowed, action, "a/+")
    assert not is_allowed(allowed, action, "a/#")
    assert not is_allowed(allowed, action, EVERYTHING)
    denied = Principal("p", [rule("deny", "a/b", action), rule("allow", "#", action)])
    assert is_allowed(denied, action, "a/c")
    assert not is_allowed(denied, action, "a/+")
    assert not is_allowed(denied, action, EVERYTHING)


def test_a_refusal_names_principal_action_and_the_start_of_the_name() -> None:
    principal = Principal("p", default=False)
    for action, text in ((Action.PUBLISH, "publish to"), (Action.REQUEST, "request")):
        with pytest.raises(NotAllowed, match=f"p may not {text} 'xxx"):
            authorize(principal, action, "x" * 5000)
    with pytest.raises(NotAllowed) as caught:
        authorize(principal, Action.HOOK, "x" * 5000)
    assert len(str(caught.value)) < 300
    assert caught.value.rule == ""


def test_a_refusal_has_the_rule_that_denies_it_but_not_in_its_text_and_fields() -> None:
    denying = dataclasses.replace(rule("deny", "a/#", Action.PUBLISH), role="staff")
    principal = Principal("p", [rule("allow", "a/open"), denying], default=False)
    for _ in range(2):  # the second one is cached
        with pytest.raises(NotAllowed) as caught:
            authorize(principal, Action.PUBLISH, "a/b")
        assert caught.value.rule == "deny publish on a/# (role staff)"
        assert "staff" not in str(caught.value)
        assert caught.value.args == ("p", Action.PUBLISH, "a/b")
    with pytest.raises(NotAllowed) as caught:
        authorize(principal, Action.PUBLISH, "b")
    assert caught.value.rule == ""


def test_an_action_on_any_name_at_all() -> None:
    principal = Principal("p", [rule("allow", "a", Action.PUBLISH)], default=False)
    authorize_anywhere(principal, Action.PUBLISH)
    authorize_anywhere(principal, Action.SUBSCRIBE, Action.PUBLISH)
    with pytest.raises(NotAllowed):
        authorize_anywhere(principal, Action.SUBSCRIBE, Action.GROUP)
    with pytest.raises(NotAllowed):
        authorize_anywhere(Principal("p"), Action.ADMINISTER)


def test_a_principal_is_not_anonymous_unless_it_says_so() -> None:
    assert not Principal("a").is_anonymous
    assert Principal("a", is_anonymous=True).is_anonymous


def test_the_name_of_a_path() -> None:
    assert path_name("/lights/3") == path_name("lights/3") == "lights/3"
    assert path_name("//x") == "/x"
    assert path_name("") == path_name("/") == EVERYTHING


def test_a_decision_is_made_once_and_again_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    matches = Rule.matches
    monkeypatch.setattr(
        access.Rule,
        "matches",
        lambda self, action, name: asked.append(name) or matches(self, action, name),
    )
    principal = Principal("p", [rule("allow", "a/#")], default=False)
    before = principal.rights
    for _ in range(3):
        assert is_allowed(principal, Action.REQUEST, "a/b")
    assert asked == ["a/b"]
    principal.set_rules([rule("deny", "a/#")], default=True)
    assert principal.rights is not before
    assert not is_allowed(principal, Action.REQUEST, "a/b")


def test_the_cache_is_bounded_in_entries_and_in_the_length_of_names() -> None:
    principal = Principal("p", [rule("allow", "a/#")], default=False)
    for number in range(2 * ACCESS_DECISIONS_MAX):
        assert is_allowed(principal, Action.REQUEST, f"a/{number}")
        assert len(principal.rights.decisions) <= ACCESS_DECISIONS_MAX
    long = "a/" + "x" * ACCESS_NAME_CHARACTERS_MAX
    assert is_allowed(principal, Action.REQUEST, long)
    assert (Action.REQUEST, long) not in principal.rights.decisions


@pytest.mark.parametrize(
    "name", ["/" * 60_000, "a/" * 30_000 + "b", "+/" * 30_000 + "#", "a" * 60_000]
)
def test_a_long_name_is_decided_in_no_time(name: str) -> None:
    rules = [rule("deny", "+/" * 60 + "x"), rule("deny", "a/b"), rule("allow", "+/+/#")]
    principal = Principal("p", rules * 10, default=False)
    started = time.process_time()
    for _ in range(10):
        is_allowed(principal, Action.REQUEST, name)
    assert time.process_time() - started < 0.5


def test_a_rule_needs_a_valid_pattern() -> None:
    with pytest.raises(InvalidPattern):
        rule("allow", "a/#/b")


@pytest.mark.parametrize("topic", ["service/serve/price", "service.serve/price", "service.serve."])
def test_requests_are_published_by_those_that_may_publish_and_request_everything(
    topic: str,
) -> None:
    everything = Principal(
        "p", [rule("allow", "#", Action.PUBLISH), rule("allow", "#", Action.REQUEST)], default=False
    )
    assert everything.may(Action.PUBLISH, topic)
    assert Principal("all").may(Action.PUBLISH, topic)
    for denying in (rule("deny", "other", Action.REQUEST), rule("deny", "secret", Action.PUBLISH)):
        limited = Principal("p", [denying], default=True)
        assert limited.restricted
        assert not limited.may(Action.PUBLISH, topic)
        assert limited.may(Action.PUBLISH, "service/served/price")


def test_answers_are_published_to_the_broker_by_those_that_may_serve_some_path() -> None:
    topic = "service/reply/broker/0"
    one_path = Principal(
        "p", [rule("allow", "price", Action.SERVE), rule("deny", "#", Action.SERVE)], default=True
    )
    assert one_path.may(Action.PUBLISH, topic)
    nothing = Principal("p", [rule("deny", "#", Action.SERVE)], default=True)
    assert nothing.restricted
    assert not nothing.may(Action.PUBLISH, topic)
    assert nothing.may(Action.PUBLISH, "service/reply/me")
    assert not is_allowed_anywhere(nothing, Action.SERVE)
    assert is_allowed_anywhere(
        Principal("p", [rule("deny", "price", Action.SERVE)], default=True), Action.SERVE
    )
