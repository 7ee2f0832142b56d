"""Access rules: which principal may do what, and the one function that decides it.

A principal is the authenticated identity of a client, or the anonymous one. Its rules are tried in
order and the first match decides; without a match, the principal's default does. `authorize` is
asked by every gateway, by HTTP and by Flight; `is_allowed` is the same question for lists. No other
module evaluates a rule.

    action       name                                   needed to
    publish      topic                                  publish to it, or create it; topics of
                                                        services need more rights, see below
    subscribe    topic or pattern                       receive its messages, live or from the log
    request      path, see `path_name`; `#` for all     send a message to clients directly
    serve        the same                               receive such a message
    hook         topic; `#` for all events              register middleware
    group        consumer group                         read or store its offsets
    administer   area, such as `clients` or `log`       see or change the broker and other clients

Servers trust requests on their topics: they answer to the topic that a request names. So a client
needs `publish` and `request` on everything to publish a request to the topic of a server. To
publish an answer to the broker, a client needs `serve` on some path.

Allowed topics are marked in a table that the scan kernels read, so a rule is evaluated once for
each principal and topic, not for each message. All other decisions are cached by principal.
"""

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.core.quotas import Quota
from penstock.errors import InvalidPattern, NotAllowed, PeerError
from penstock.limits import ACCESS_DECISIONS_MAX, ACCESS_NAME_CHARACTERS_MAX
from penstock.patterns import canonical_pattern, covers, overlaps
from penstock.service_messages import BROKER_REPLY_PREFIX, path_of_requests

__all__ = [
    "ANYONE",
    "EVERYTHING",
    "Action",
    "Authenticator",
    "Peer",
    "Principal",
    "Rule",
    "authorize",
    "authorize_anywhere",
    "is_allowed",
    "is_allowed_anywhere",
    "path_name",
]

EVERYTHING: Final = "#"
"""The name of an act that concerns all names."""
_NAME_CHARACTERS_SHOWN: Final = 200


class Action(enum.StrEnum):
    """An action that rules allow or deny."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    REQUEST = "request"
    SERVE = "serve"
    HOOK = "hook"
    GROUP = "group"
    ADMINISTER = "administer"


_NEEDED_TO_PUBLISH: Final = frozenset({Action.PUBLISH, Action.REQUEST, Action.SERVE})
"""Actions that decide whether a client may publish: REQUEST and SERVE for topics of services."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Allow or deny actions on the names that a pattern matches.

    A name with wildcards stands for many: an allowing rule matches it only if the rule covers them
    all, a denying rule if it covers any of them. `role` is the role that it belongs to, empty for a
    rule of the principal itself.
    """

    allow: bool
    actions: frozenset[Action]
    pattern: str
    role: str = ""

    def __post_init__(self) -> None:
        canonical_pattern(self.pattern)  # raises InvalidPattern

    def __str__(self) -> str:
        verdict = "allow" if self.allow else "deny"
        actions = " ".join(action for action in Action if action in self.actions)
        role = f" (role {self.role})" if self.role else ""
        return f"{verdict} {actions} on {self.pattern}{role}"

    def matches(self, action: Action, name: str) -> bool:
        """Return whether this rule decides `action` on `name`; raise InvalidPattern."""
        if action not in self.actions:
            return False
        return covers(self.pattern, name) if self.allow else overlaps(self.pattern, name)


class _Rights:
    """The rules of a principal and their cached decisions. Replaced as a whole, never changed.

    A thread that decides by old rules while they are replaced stores its decision with them.
    """

    __slots__ = ("administers", "decisions", "default", "rules")

    def __init__(self, rules: Sequence[Rule], *, default: bool, administers: bool) -> None:
        self.rules = tuple(rules)
        self.default = default
        self.administers = administers
        self.decisions: dict[tuple[Action, str], Rule | bool] = {}

    def decide(self, action: Action, name: str) -> Rule | bool:
        """Return the verdict of the first rule that matches, or the default; a rule that denies.

        A name that is no valid pattern is denied, but for subscriptions, where InvalidPattern is
        raised.
        """
        if action is Action.PUBLISH and not self._may_publish_for_services(name):
            return False
        for rule in self.rules:
            try:
                matches = rule.matches(action, name)
            except InvalidPattern:
                if action is Action.SUBSCRIBE:
                    raise
                return False
            if matches:
                return rule.allow or rule
        return self.administers if action is Action.ADMINISTER else self.default

    def _may_publish_for_services(self, topic: str) -> bool:
        """Return whether the rights for topics of services allow publishing; True for others."""
        if path_of_requests(topic) is not None:
            return all(
                self.decide(each, EVERYTHING) is True for each in (Action.PUBLISH, Action.REQUEST)
            )
        return not topic.startswith(BROKER_REPLY_PREFIX) or self.allows_anywhere(Action.SERVE)

    def allows_anywhere(self, action: Action) -> bool:
        """Return whether an action may be allowed on any name at all."""
        for rule in self.rules:
            if action in rule.actions and (rule.allow or covers(rule.pattern, EVERYTHING)):
                return rule.allow
        return self.administers if action is Action.ADMINISTER else self.default


class Principal:
    """An identity: its name, its rules, and the permit table of topics it may publish to.

    `default` is the verdict where no rule matches, except for `administer`: there it is
    `administers`. `is_anonymous` is true for the principal of clients without credentials.
    """

    def __init__(
        self,
        name: str,
        rules: Sequence[Rule] = (),
        *,
        default: bool = True,
        administers: bool = False,
        is_anonymous: bool = False,
    ) -> None:
        self.name = name
        self.is_anonymous = is_anonymous
        self.credentials_version = 0
        """Grows when credentials change or the principal is removed: earlier log-ins are void."""
        self.quota = Quota(name)
        """Limits of all its clients together."""
        self.permits = bytearray()
        self.set_rules(rules, default=default, administers=administers)

    def set_rules(self, rules: Sequence[Rule], *, default: bool, administers: bool = False) -> None:
        """Replace the rules, and clear the permit table and all cached decisions."""
        self.rights = _Rights(rules, default=default, administers=administers)
        """The current rules. Another object after every change, so that a change can be noticed."""
        self.restricted = not default or any(
            not rule.allow and not rule.actions.isdisjoint(_NEEDED_TO_PUBLISH) for rule in rules
        )
        """Whether publishing to some topic is denied."""
        self.permits[:] = bytes(len(self.permits))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order."""
        return self.rights.rules

    @property
    def default(self) -> bool:
        """The verdict where no rule matches."""
        return self.rights.default

    def may(self, action: Action, name: str) -> bool:
        """Return whether an action on a name or pattern is allowed. Ask by `is_allowed`."""
        rights = self.rights
        if not rights.rules and action is not Action.ADMINISTER:
            return rights.default
        return self._decided(rights, action, name) is True

    def denied_by(self, action: Action, name: str) -> Rule | None:
        """Return the rule that denies an action; None if none does, or if it is allowed."""
        found = self._decided(self.rights, action, name)
        return None if isinstance(found, bool) else found

    @staticmethod
    def _decided(rights: _Rights, action: Action, name: str) -> Rule | bool:
        """Return the cached decision, see `_Rights.decide`."""
        key = (action, name)
        found = rights.decisions.get(key)
        if found is None:
            found = rights.decide(action, name)
            if len(name) <= ACCESS_NAME_CHARACTERS_MAX:
                if len(rights.decisions) >= ACCESS_DECISIONS_MAX:
                    rights.decisions.clear()
                rights.decisions[key] = found
        return found

    def may_anywhere(self, action: Action) -> bool:
        """Return whether an action may be allowed on any name at all."""
        return self.rights.allows_anywhere(action)

    def permit(self, identifier: int) -> None:
        """Mark a topic in the permit table, for the scan kernels."""
        if identifier >= len(self.permits):
            self.permits.extend(bytes(identifier + 1 - len(self.permits)))
        self.permits[identifier] = 1


def authorize(principal: Principal, action: Action, name: str) -> None:
    """Raise NotAllowed unless a principal may do this; InvalidPattern for a bad subscription."""
    if not principal.may(action, name):
        error = NotAllowed(principal.name, action, name[:_NAME_CHARACTERS_SHOWN])
        error.rule = str(principal.denied_by(action, name) or "")
        raise error


def is_allowed(principal: Principal, action: Action, name: str) -> bool:
    """Return whether `authorize` would pass, for lists that show only what is allowed."""
    return principal.may(action, name)


def is_allowed_anywhere(principal: Principal, action: Action) -> bool:
    """Return whether `authorize_anywhere` would pass for an action."""
    return principal.may_anywhere(action)


def authorize_anywhere(principal: Principal, *actions: Action) -> None:
    """Raise NotAllowed unless a principal may do one of these actions on some name."""
    if not any(principal.may_anywhere(action) for action in actions):
        raise NotAllowed(principal.name, actions[0], EVERYTHING)


def path_name(path: str) -> str:
    """Return the name of a path in rules: `/lights/3` is `lights/3`; without a path, EVERYTHING."""
    return path.removeprefix("/") or EVERYTHING


class Peer(Protocol):
    """The client's end of a connection, as far as it identifies the client."""

    @property
    def host(self) -> str:
        """The IP address; empty for a socket file or a program."""

    @property
    def certificate_names(self) -> frozenset[str]:
        """The names in the verified client certificate; empty if there is none.

        `subject:` and the subject as in RFC 4514, and a subject alternative name with its type:
        `DNS:press-4.example`.
        """

    @property
    def has_left(self) -> bool:
        """Whether the client has closed its side, even if the broker does not read from it."""


class Authenticator(Protocol):
    """Verifies credentials and returns their principal; raises AuthenticationFailed.

    `peer` is the client. Its address counts failures, and may be all that a principal needs.
    """

    @property
    def active(self) -> bool:
        """Whether there are principals; if there are none, credentials are ignored."""

    def identify(self, peer: Peer) -> Principal | None:
        """Return the principal of a certificate or address, None if it belongs to none."""

    def verify_token(self, token: str, peer: Peer) -> Principal:
        """Return the principal of a token."""

    def seconds_left(self, token: str) -> float | None:
        """Return the seconds until a verified token expires, None if it does not."""

    def verify_api_key(self, api_key: str, peer: Peer) -> Principal:
        """Return the principal of an API key."""

    def verify_bearer(self, secret: str, peer: Peer) -> Principal:
        """Return the principal of a token or an API key."""

    def check_basic(
        self,
        username: str,
        password: str,
        peer: Peer,
        then: Callable[[Principal | PeerError], None],
    ) -> Callable[[], None]:
        """Verify a password in the background; call `then` later with the principal or an error.

        Return a function that cancels the verification; `then` is not called after it.
        """

    def verify_identity_key(self, identity: str, key: bytes, peer: Peer) -> Principal:
        """Return the principal of an identity name and key."""

    def requires_key(self, identity: str) -> bool:
        """Return whether an identity name is configured, so that its key is required."""


ANYONE = Principal("anyone", administers=True, is_anonymous=True)
"""The default anonymous principal: no rules, everything allowed."""
