"""A message as each protocol writes it, explained field by field by the decoder of captures."""

from typing import Final, NamedTuple

from penstock.client.options import Credentials
from penstock.client.sessions.base import Extras
from penstock.client.sessions.factory import session_factory
from penstock.decode.layout import LEFT_OVER, Field, walk
from penstock.decode.reading import Side, reading_of
from penstock.errors import PenstockError
from penstock.protocols import PROTOCOLS, Protocol

__all__ = ["ShownField", "ShownFrame", "frames_of"]

_NAME: Final = "console"
_NUMBER: Final = 7
_CHANNEL: Final = "channel/1"
_STEPS_MAX: Final = 4
"""Packets of a handshake that may come before a publish."""


class ShownField(NamedTuple):
    """A field of a frame: its name, bytes and meaning."""

    name: str
    start: int
    data: bytes
    meaning: str


class ShownFrame(NamedTuple):
    """The frame with which a client of a protocol publishes a message.

    `note` says why there is none, or what is special about it.
    """

    protocol: str
    name: str
    data: bytes
    fields: tuple[ShownField, ...]
    note: str = ""


def frames_of(
    topic: str, value: bytes, headers: tuple[tuple[str, bytes], ...] = ()
) -> list[ShownFrame]:
    """Return the frame of a message for each protocol."""
    return [_frame(protocol, topic, value, headers) for protocol in PROTOCOLS]


def _frame(
    protocol: Protocol, topic: str, value: bytes, headers: tuple[tuple[str, bytes], ...]
) -> ShownFrame:
    note = ""
    if protocol.carries.channels and not topic.startswith("channel/"):
        topic = _CHANNEL
        note = (
            "This protocol has numbered channels instead of names. The setting herald.channels "
            f"gives a channel its topic; the frame is that of {_CHANNEL}."
        )
    extras = Extras(headers=headers if protocol.carries.headers else ())
    try:
        session = session_factory(protocol, Credentials(name=_NAME))()
        session.start()
        session.assume_number(_NUMBER)
        session.publish(topic, [value], extras)
        session.data_to_send()  # with the handshake
        session.publish(topic, [value], extras)
        data = bytes(session.data_to_send())
    except PenstockError as error:
        return ShownFrame(protocol.label, "", b"", (), str(error))
    name, fields = _explained(protocol, data)
    return ShownFrame(protocol.label, name, data, fields, note)


def _explained(protocol: Protocol, data: bytes) -> tuple[str, tuple[ShownField, ...]]:
    order = protocol.orders[0]
    side: Side
    side, _ = reading_of(protocol).sides(order, True)  # noqa: FBT003
    name, fields = "", list[Field]()
    for _ in range(_STEPS_MAX):
        name, layout = side.layout(data)
        fields = walk(layout, data, order=order)
        if not any(field.fault or field.name == LEFT_OVER for field in fields):
            break
        side.passed(None)  # it was the layout of a packet of the handshake
    shown = tuple(
        ShownField(field.name, field.start, data[field.start : field.end], _meaning(field))
        for field in fields
    )
    return name, shown


def _meaning(field: Field) -> str:
    value = "" if field.value is None else str(field.value)
    return " ".join(part for part in (value, field.means and f"({field.means})") if part)
