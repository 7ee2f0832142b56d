"""Events that hooks can see, and some of which they can refuse."""

import dataclasses
import enum
from typing import Final

from penstock.core.sessions import Session
from penstock.model import Protocol

__all__ = ["REFUSABLE", "Event", "EventKind"]


class EventKind(enum.StrEnum):
    """The kinds of events."""

    CONNECT = "connect"
    DISCONNECT = "disconnect"
    PUSH = "push"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    REGISTER = "register"
    UNREGISTER = "unregister"


REFUSABLE: Final = frozenset(
    {EventKind.CONNECT, EventKind.PUSH, EventKind.SUBSCRIBE, EventKind.REGISTER}
)
"""Events that happen only if no hook refuses. Hooks are notified of the others afterwards."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """An action of a client, in any protocol.

    `subject` is the topic of a message, the pattern of a subscription, the name of a hook, or else
    the client's name. `session` is None while the client is connecting. The last four fields
    belong to messages; `created_at` is in seconds since the epoch, None if the protocol has no
    such time.
    """

    kind: EventKind
    subject: str
    client: str
    protocol: Protocol
    session: Session | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    value: bytes = b""
    value_is_text: bool = False
    created_at: int | None = None
