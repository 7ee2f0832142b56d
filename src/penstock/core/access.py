"""Who may publish and subscribe to what.

A principal is whom a client proved to be, or nobody in particular. Its rules are tried in order and
the first that fits decides; where none fits, the principal's default does. Verdicts on publishing
are remembered per topic in a table that the scan kernels read, so a rule is evaluated once for each
principal and topic, not for each message.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.errors import PeerError
from penstock.patterns import compile_pattern, covers, overlaps

__all__ = ["ANYONE", "Action", "Authenticator", "Principal", "Rule"]


class Action(enum.StrEnum):
    """What a rule is about."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Allow or deny actions on the topics that a pattern matches.

    A subscription with wildcards asks for many topics at once: a rule that allows fits it only if
    it covers them all, a rule that denies if it names any of them.
    """

    allow: bool
    actions: frozenset[Action]
    pattern: str
    expression: re.Pattern[str] | None = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", compile_pattern(self.pattern))

    def fits(self, action: Action, topic: str) -> bool:
        """Tell whether this rule has a say on `action` on `topic`."""
        if action not in self.actions:
            return False
        if action is Action.SUBSCRIBE:
            return covers(self.pattern, topic) if self.allow else overlaps(self.pattern, topic)
        if self.expression is None:
            return topic == self.pattern
        return self.expression.fullmatch(topic) is not None


class Principal:
    """A name with its rules, and the table of topics it may publish to."""

    def __init__(self, name: str, rules: Sequence[Rule] = (), *, default: bool = True) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.default = default
        self.permits = bytearray()

    @property
    def restricted(self) -> bool:
        """Whether there is any topic that it may not publish to."""
        return not self.default or any(
            not rule.allow and Action.PUBLISH in rule.actions for rule in self.rules
        )

    def may(self, action: Action, topic: str) -> bool:
        """Judge one action on one topic (or subscription pattern)."""
        for rule in self.rules:
            if rule.fits(action, topic):
                return rule.allow
        return self.default

    def permit(self, identifier: int) -> None:
        """Remember that it may publish to a topic, for the scan kernels."""
        if identifier >= len(self.permits):
            self.permits.extend(bytes(identifier + 1 - len(self.permits)))
        self.permits[identifier] = 1


class Authenticator(Protocol):
    """Turns what a client brings into the principal it is; each raises AuthenticationFailed."""

    def verify_token(self, token: str) -> Principal:
        """Return whose token this is."""

    def verify_api_key(self, api_key: str) -> Principal:
        """Return whose API key this is."""

    def check_basic(
        self, username: str, password: str, then: Callable[[Principal | PeerError], None]
    ) -> None:
        """Find out whose name and password these are, and call `then` with whom or with why not.

        It takes its time, and is called later.
        """

    def verify_lamamq(self, identity: str, key: bytes) -> Principal:
        """Return whose identity name and key these are."""

    def requires_key(self, identity: str) -> bool:
        """Tell whether an identity name belongs to somebody, so that a key must prove it."""


ANYONE = Principal("anyone")
"""A client that did not say who it is, where that is allowed; without rules it may do all."""
