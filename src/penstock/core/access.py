"""Access rules: which principal may publish and subscribe to which topics.

A principal is the authenticated identity of a client, or the anonymous one. Its rules are tried in
order and the first match decides; without a match, the principal's default does. Allowed topics are
marked in a table that the scan kernels read, so a rule is evaluated once for each principal and
topic, not for each message.
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
    """An action that rules allow or deny."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Allow or deny actions on the topics that a pattern matches.

    A subscription with wildcards stands for many topics: an allowing rule matches it only if the
    rule covers them all, a denying rule if it covers any of them.
    """

    allow: bool
    actions: frozenset[Action]
    pattern: str
    expression: re.Pattern[str] | None = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", compile_pattern(self.pattern))

    def matches(self, action: Action, topic: str) -> bool:
        """Return whether this rule decides `action` on `topic`."""
        if action not in self.actions:
            return False
        if action is Action.SUBSCRIBE:
            return covers(self.pattern, topic) if self.allow else overlaps(self.pattern, topic)
        if self.expression is None:
            return topic == self.pattern
        return self.expression.fullmatch(topic) is not None


class Principal:
    """An identity: its name, its rules, and the permit table of topics it may publish to."""

    def __init__(
        self,
        name: str,
        rules: Sequence[Rule] = (),
        *,
        default: bool = True,
        anonymous: bool = False,
    ) -> None:
        self.name = name
        self.anonymous = anonymous
        """Whether all clients without credentials share it."""
        self.permits = bytearray()
        self.set_rules(rules, default=default)

    def set_rules(self, rules: Sequence[Rule], *, default: bool) -> None:
        """Replace the rules, and clear the permit table."""
        self.rules = tuple(rules)
        self.default = default
        self.restricted = not default or any(
            not rule.allow and Action.PUBLISH in rule.actions for rule in rules
        )
        """Whether publishing to some topic is denied."""
        self.permits[:] = bytes(len(self.permits))

    def may(self, action: Action, topic: str) -> bool:
        """Return whether an action on a topic or subscription pattern is allowed."""
        for rule in self.rules:
            if rule.matches(action, topic):
                return rule.allow
        return self.default

    def may_anywhere(self, action: Action) -> bool:
        """Tell whether an action may be allowed on any topic at all."""
        return self.default or any(rule.allow and action in rule.actions for rule in self.rules)

    def permit(self, identifier: int) -> None:
        """Mark a topic in the permit table, for the scan kernels."""
        if identifier >= len(self.permits):
            self.permits.extend(bytes(identifier + 1 - len(self.permits)))
        self.permits[identifier] = 1


class Authenticator(Protocol):
    """Verifies credentials and returns their principal; raises AuthenticationFailed."""

    def verify_token(self, token: str) -> Principal:
        """Return the principal of a token."""

    def verify_api_key(self, api_key: str) -> Principal:
        """Return the principal of an API key."""

    def check_basic(
        self, username: str, password: str, then: Callable[[Principal | PeerError], None]
    ) -> None:
        """Verify a password in the background; call `then` later with the principal or an error."""

    def verify_identity_key(self, identity: str, key: bytes) -> Principal:
        """Return the principal of an identity name and key."""

    def requires_key(self, identity: str) -> bool:
        """Return whether an identity name is configured, so that its key is required."""


ANYONE = Principal("anyone", anonymous=True)
"""The default anonymous principal: no rules, everything allowed."""
