"""A simple model of access rules, by sets of names, and random configurations for it.

The model does not share code with `core/access.py`: a pattern is the set of all names of a small
alphabet that it matches, "covers" is a subset and "overlaps" is an intersection. One letter of the
alphabet stands in no pattern, and names are deeper than patterns, so this is exact.
"""

import itertools
import random
from functools import cache

from penstock.server.config import (
    AnonymousConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RoleConfig,
    RuleConfig,
)
from penstock.server.credentials import hash_key

ACTIONS = ("publish", "subscribe", "request", "serve", "hook", "group", "administer")
TOPICS = ("a", "a/b", "a.b", "a/c", "s", "s/x", "s.x/y", "s/x/y")
PATTERNS = ("#", ">", "a/#", "a/+", "+", "*/x", "s/#", "s.+", "s.>", "+/+", "+.*", "s/+.y", *TOPICS)
PATHS = ("/a", "/a/b", "s/x", "/s", "")
GROUPS = ("a", "x")
"""Groups of readers of tables."""
MEMBER_GROUPS = {"s": "s.#", "y": "+/+"}
"""Groups of clients, with their patterns."""
SERVICES = ("/a", "/s/x", "/s.x")
AREAS = ("clients", "log", "stats")
PEOPLE = ("ann", "bob")
ANONYMOUS = "anonymous"

_SEPARATED_MAX = 3
"""Levels up to which names have all separators; a longer one stands in no pattern as it is."""
_NAMES = [
    "".join(map("".join, zip(levels, (*separators, ""), strict=True)))
    for depth in range(1, 5)
    for levels in itertools.product("abcsxy~", repeat=depth)
    for separators in itertools.product("/." if depth <= _SEPARATED_MAX else "/", repeat=depth - 1)
] + [*AREAS, *(f"groups/{name}" for name in (*GROUPS, *MEMBER_GROUPS))]


@cache
def names_of(pattern: str) -> frozenset[str]:
    """All names that a pattern matches, or the name itself."""
    wanted = _levels(pattern)
    if not {"#", ">", "+", "*"} & set(wanted):
        return frozenset({pattern})
    return frozenset(name for name in _NAMES if _matches(wanted, _levels(name)))


def _levels(name: str) -> list[str]:
    return name.replace(".", "/").split("/")


def _matches(wanted: list[str], levels: list[str]) -> bool:
    if not wanted:
        return not levels
    if wanted[0] in {"#", ">"}:
        return True
    if not levels:
        return False
    return wanted[0] in {"+", "*", levels[0]} and _matches(wanted[1:], levels[1:])


class Model:
    """Who may do what, by the configuration that is in effect."""

    def __init__(self, config: Config) -> None:
        roles = {role.name: role.rule for role in config.role}
        self._rules: dict[str, list[tuple[bool, str, str]]] = {}
        self._default: dict[str, bool] = {}
        for owner in (*config.principal, config.anonymous):
            name = owner.name if isinstance(owner, PrincipalConfig) else ANONYMOUS
            rules = [*owner.rule, *(rule for role in owner.roles for rule in roles[role])]
            self._rules[name] = [
                (rule.allow is not None, action, pattern)
                for rule in rules
                for pattern in rule.topics
                for action in rule.allow or rule.deny or ()
            ]
            default = owner.default
            if default is None:
                default = "deny" if any(rule.allow for rule in rules) else "allow"
            self._default[name] = default == "allow"

    def may(self, who: str, action: str, name: str) -> bool:
        meant = names_of(name)
        for allow, right, pattern in self._rules[who]:
            if right != action:
                continue
            matched = names_of(pattern)
            if meant <= matched if allow else meant & matched:
                return allow
        return self._default[who] and action != "administer"

    def may_request(self, who: str, path: str) -> bool:
        return self.may(who, "request", path.removeprefix("/") or "#")

    def may_serve(self, who: str, path: str) -> bool:
        return self.may(who, "serve", path.removeprefix("/") or "#")

    def may_anywhere(self, who: str, *actions: str) -> bool:
        return any(self._may_somewhere(who, action) for action in actions)

    def _may_somewhere(self, who: str, action: str) -> bool:
        for allow, each, pattern in self._rules[who]:
            if each == action and (allow or pattern in ("#", ">")):
                return allow
        return self._default[who] and action != "administer"


def random_config(dice: random.Random) -> Config:
    """A configuration with random rights of the same principals."""
    roles = tuple(
        RoleConfig(name=name, rule=tuple(_rule(dice) for _ in range(dice.randint(1, 2))))
        for name in ("first", "second")
    )
    return Config(
        role=roles,
        principal=tuple(
            PrincipalConfig(
                name=name,
                token=name,
                identity_key=IdentityConfig(identity=name, key_sha256=_hash(name)),
                **_rights(dice),
            )
            for name in PEOPLE
        ),
        anonymous=AnonymousConfig(**_rights(dice)),
    )


@cache
def _hash(name: str) -> str:
    return hash_key(name.encode())


def _rights(dice: random.Random) -> dict[str, object]:
    count = dice.choice((0, 1, 2, 3, 5))
    return {
        "rule": tuple(_rule(dice) for _ in range(count)),
        "roles": tuple(dice.sample(("first", "second"), dice.choice((0, 0, 0, 1, 2)))),
        "default": dice.choice((None, None, "allow", "deny")),
    }


def _rule(dice: random.Random) -> RuleConfig:
    actions = tuple(dice.sample(ACTIONS, dice.randint(1, 5)))
    topics = tuple(dice.sample(PATTERNS, dice.randint(1, 2)))
    if dice.random() < 0.6:
        return RuleConfig(allow=actions, topics=topics)
    return RuleConfig(deny=actions, topics=topics)
