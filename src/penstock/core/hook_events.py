"""What middleware may have a say in, or at least be told."""

import dataclasses
import enum
from typing import Final

from penstock.core.sessions import Session
from penstock.protocols import Source

__all__ = ["REFUSABLE", "Event", "EventKind"]


class EventKind(enum.StrEnum):
    """What a client does."""

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
"""These happen only if no hook refuses. The others have happened already: hooks are told."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One thing that a client does or has done, in any protocol.

    `subject` is the topic of a message, the pattern of a subscription, the name of a hook or else
    the client's own. `session` is the client's, None while it is still connecting. The last four
    belong to messages; `created_at` is in seconds since the epoch, None where the protocol has no
    such time.
    """

    kind: EventKind
    subject: str
    client: str
    protocol: Source
    session: Session | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    value: bytes = b""
    value_is_text: bool = False
    created_at: int | None = None
