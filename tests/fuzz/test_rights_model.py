"""Random operations of all protocols, HTTP and Flight, as principals with random rights: no leak.

`make fuzz-rights SEQUENCES=10000` is the long run.
"""

import random

import pytest

from penstock.core import broker as broker_module
from penstock.core.access import Principal
from tests.fuzz.rights_model import PATTERNS, TOPICS, Model, names_of, random_config
from tests.fuzz.rights_run import run

SEED = 20261116
SEQUENCES = 60


def test_no_client_sees_or_does_more_or_less_than_the_model_says() -> None:
    run(sequences=SEQUENCES, seed=SEED)


@pytest.mark.parametrize("right", ["subscribe", "request", "serve", "hook", "group"])
def test_a_right_that_is_not_asked_for_is_found(
    right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test can fail: a broker that grants one right to everyone differs from the model."""
    ask = Principal.may
    monkeypatch.setattr(
        Principal, "may", lambda self, action, name: action == right or ask(self, action, name)
    )
    with pytest.raises(AssertionError):
        run(sequences=SEQUENCES, seed=SEED)


def test_a_reload_that_does_not_end_sessions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module.Broker, "rules_changed", lambda _: None)
    with pytest.raises(AssertionError):
        run(sequences=SEQUENCES, seed=SEED)


def test_the_model_knows_what_patterns_mean() -> None:
    assert names_of("a/b") == {"a/b"}
    assert {"a", "a/b", "a/b/c/x"} <= names_of("a/#")
    assert names_of("a/+") < names_of("a/#") < names_of("#") == names_of(">")
    assert "a" not in names_of("a/+")
    assert all(set(TOPICS) & names_of(pattern) for pattern in PATTERNS)


def test_random_rights_are_neither_all_nor_none() -> None:
    dice = random.Random(SEED)
    models = [Model(random_config(dice)) for _ in range(200)]
    for action in ("publish", "subscribe", "request", "serve", "hook", "group", "administer"):
        allowed = sum(model.may("ann", action, "a/b") for model in models)
        assert 20 < allowed < 180, action
