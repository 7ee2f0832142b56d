"""Events that a session decodes from received bytes."""

import dataclasses
from typing import TypeAlias

from penstock.client.errors import Refused
from penstock.client.values import Delivery, HookCall, Notification, Reply, Request
from penstock.positions import Anchor

__all__ = [
    "Acknowledged",
    "Anchored",
    "Delivered",
    "Ended",
    "Event",
    "Failed",
    "HookCalled",
    "Notified",
    "Ready",
    "Replied",
    "Requested",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is done; `identity` is the client id assigned by the broker, if any."""

    identity: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledged:
    """The command of `ticket` succeeded; `message_id` is set if the protocol has one."""

    ticket: int
    message_id: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """The command of `ticket` was refused.

    The ticket is None for a publish that the protocol does not acknowledge, and for the handshake
    (before `Ready`).
    """

    ticket: int | None
    error: Refused


@dataclasses.dataclass(frozen=True, slots=True)
class Replied:
    """The request of `ticket` was answered."""

    ticket: int
    reply: Reply


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """A message of a subscription arrived."""

    delivery: Delivery


@dataclasses.dataclass(frozen=True, slots=True)
class Anchored:
    """The broker said where a subscription takes effect; see `penstock.positions`."""

    anchor: Anchor


@dataclasses.dataclass(frozen=True, slots=True)
class Requested:
    """A request of another client arrived."""

    request: Request


@dataclasses.dataclass(frozen=True, slots=True)
class Notified:
    """A notification of another client or the broker arrived."""

    notification: Notification


@dataclasses.dataclass(frozen=True, slots=True)
class HookCalled:
    """The broker calls a hook of a middleware."""

    call: HookCall


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """The broker announced that it closes the connection."""


Event: TypeAlias = (
    Ready
    | Acknowledged
    | Anchored
    | Failed
    | Replied
    | Delivered
    | Requested
    | Notified
    | HookCalled
    | Ended
)
