"""What a session makes of received bytes."""

import dataclasses
from typing import TypeAlias

from penstock.client.errors import Refused
from penstock.client.values import Delivery, HookCall, Notification, Reply, Request

__all__ = [
    "Acknowledged",
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
    """The handshake is done; `identity` is the number the broker gave, where it gives one."""

    identity: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Acknowledged:
    """What was sent under `ticket` is done; `message_id` is the broker's, where it has one."""

    ticket: int
    message_id: bytes | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Failed:
    """What was sent under `ticket` was refused.

    Without a ticket nobody waits for it: a publish that the protocol does not acknowledge, or the
    handshake if it comes before `Ready`.
    """

    ticket: int | None
    error: Refused


@dataclasses.dataclass(frozen=True, slots=True)
class Replied:
    """The request sent under `ticket` has its answer."""

    ticket: int
    reply: Reply


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """A message of a subscription came."""

    delivery: Delivery


@dataclasses.dataclass(frozen=True, slots=True)
class Requested:
    """Another client asks something."""

    request: Request


@dataclasses.dataclass(frozen=True, slots=True)
class Notified:
    """Another client, or the broker, tells something."""

    notification: Notification


@dataclasses.dataclass(frozen=True, slots=True)
class HookCalled:
    """The broker asks a middleware about an event."""

    call: HookCall


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """The broker said that it ends the connection."""


Event: TypeAlias = (
    Ready | Acknowledged | Failed | Replied | Delivered | Requested | Notified | HookCalled | Ended
)
