"""Acknowledgments of messages of consumer groups: NOTIF or REQ to client 1, `/ack` or `/nack`.

Messages of a group are numbered, in each connection, in the order in which it gets them: from 1 on.
The payload says which of them were processed, or could not be:

    nil                                 the first one that is not acknowledged
    7                                   the seventh
    [5, 7]                              the fifth to the seventh
    {"group": "billing",                the same, in a group: needed if the client is in several
     "delivery": 7 or [5, 7] or nil,
     "reason": "no such account"}       why they could not be processed
"""

from typing import Final, NamedTuple

from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.errors import InvalidAcknowledgment, PeerError
from penstock.wire import messagepack

__all__ = ["ACKNOWLEDGMENTS", "acknowledge"]

ACKNOWLEDGMENTS: Final = frozenset({"/ack", "/nack"})
_SPAN_MAX: Final = 1000
"""Messages that one acknowledgment may name: each takes some microseconds of the event loop."""
_LIMITS: Final = {"depth_max": 3, "elements_max": 16, "string_bytes_max": 4096}


class _Request(NamedTuple):
    group: str | None
    numbers: range | None
    reason: str


def acknowledge(broker: Broker, session: Session, *, path: str, payload: bytes) -> int:
    """Process an acknowledgment; return the number of messages. Raise InvalidAcknowledgment."""
    request = _parsed(payload)
    memberships = session.memberships
    if request.group is not None:
        member = memberships.get(request.group)
    else:
        member = next(iter(memberships.values())) if len(memberships) == 1 else None
    if broker.groups is None or member is None:
        if not memberships:
            raise InvalidAcknowledgment("this client is in no group")
        raise InvalidAcknowledgment(f"name a group of this client: {', '.join(memberships)}")
    failure = None if path == "/ack" else request.reason
    return broker.groups.acknowledgments.acknowledge(member, request.numbers, failure)


def _parsed(payload: bytes) -> _Request:
    try:
        value = messagepack.decode(payload, **_LIMITS) if payload else None
    except PeerError as error:
        raise InvalidAcknowledgment(str(error)) from error
    if not isinstance(value, dict):
        return _Request(None, _numbers(value), "")
    group, reason = value.get("group"), value.get("reason", "")
    if not isinstance(group, str | None) or not isinstance(reason, str):
        raise InvalidAcknowledgment("`group` and `reason` are text")
    return _Request(group, _numbers(value.get("delivery")), reason)


def _numbers(value: object) -> range | None:
    if value is None:
        return None
    match value:
        case int(number) | [int(number)]:
            span = range(number, number + 1)
        case [int(first), int(last)]:
            span = range(first, last + 1)
        case _:
            span = range(0)
    if not 0 < len(span) <= _SPAN_MAX or span[0] < 1:
        raise InvalidAcknowledgment(
            f"`delivery` is nil, a number, or the first and the last of at most {_SPAN_MAX} numbers"
        )
    return span
