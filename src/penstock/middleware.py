"""Values of middleware: the events it can hook, its strategies and its conditions.

The numbers are those of the hook messages on the wire.
"""

import dataclasses
import enum
from typing import TypeAlias

__all__ = ["Condition", "HasHeader", "HeaderIs", "HookStrategy", "HookType", "TopicIs"]


class HookStrategy(enum.IntEnum):
    """How the broker treats the answer of a middleware."""

    TELL = 0
    WAIT_OR_REFUSE = 1
    WAIT_OR_GO_ON = 2


class HookType(enum.IntEnum):
    """The events a middleware may hook."""

    CONNECT = 0
    DISCONNECT = 1
    MESSAGE_PUSHED = 16
    SUBSCRIBED = 32
    UNSUBSCRIBED = 33
    REGISTERED = 64
    UNREGISTERED = 65


@dataclasses.dataclass(frozen=True, slots=True)
class TopicIs:
    """Holds for messages of one topic."""

    topic: str


@dataclasses.dataclass(frozen=True, slots=True)
class HeaderIs:
    """Holds for messages with this value of a header."""

    header: str
    value: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class HasHeader:
    """Holds for messages with a header, of any value."""

    header: str


Condition: TypeAlias = TopicIs | HeaderIs | HasHeader
