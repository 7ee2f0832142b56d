"""Apply a new configuration to a running broker, as far as it can change."""

import dataclasses
from typing import Final

import msgspec

from penstock.server.config import Config

__all__ = ["Reloaded", "reload"]

RELOADABLE: Final = frozenset(
    {
        "broker.subscriptions_max",
        "broker.hold_seconds_max",
        "broker.slow_consumer",
        "hooks.grace_seconds",
        "hooks.required",
        "limits.stop_seconds_max",
        "role",
        "auth.users",
        "principal",
        "jwt",
        "anonymous.default",
        "anonymous.roles",
        "anonymous.rule",
        "anonymous.quota",
        "quota.connections_max",
        "quota.messages_per_second_max",
        "quota.bytes_per_second_max",
        "quota.stored_bytes_max",
        "quota.topics_max",
    }
)
"""Settings that take effect while the broker runs. All others are read once, at the start."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reloaded:
    """The result of a reload.

    `config` has the new values of settings that can change and the old values of all others.
    `changed` has the keys of settings that changed.
    """

    config: Config
    changed: tuple[str, ...]


def reload(old: Config, new: Config) -> tuple[Reloaded, list[str]]:
    """Return the result of replacing `old` by `new`, and the settings that need a restart."""
    changed: list[str] = []
    waiting: list[str] = []
    tables: dict[str, object] = {}
    for field in msgspec.structs.fields(Config):
        name = field.name
        before, after = getattr(old, name), getattr(new, name)
        if not isinstance(before, msgspec.Struct):
            if before != after:
                (changed if name in RELOADABLE else waiting).append(name)
            tables[name] = after if name in RELOADABLE else before
            continue
        taken: dict[str, object] = {}
        for inner in msgspec.structs.fields(before):
            key = f"{name}.{inner.name}"
            value = getattr(after, inner.name)
            if getattr(before, inner.name) == value:
                continue
            if key in RELOADABLE:
                changed.append(key)
                taken[inner.name] = value
            else:
                waiting.append(key)
        tables[name] = msgspec.structs.replace(before, **taken)
    return Reloaded(Config(**tables), tuple(changed)), waiting  # type: ignore[arg-type]
