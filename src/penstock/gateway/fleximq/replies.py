"""Replies and errors that the broker sends to one fleximq client."""

from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.errors import LogUnavailable
from penstock.gateway.base import NOT_WRITTEN
from penstock.gateway.fleximq import frames
from penstock.ports import Link
from penstock.wire.fleximq import ClientId, Message, MessageType, StatusCode

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Replies"]


class Replies:
    """Sends the broker's own frames to a client, before and after it has joined.

    `session` is None until it has. While the out-buffer is full, replies to a joined client are
    dropped, and a client that has not joined is disconnected.
    """

    __slots__ = ("_broker", "_id_bytes_max", "_link", "session")

    def __init__(self, broker: Broker, link: Link, *, id_bytes_max: int) -> None:
        """Answer without the `reqrep.id` of a message if it has more than `id_bytes_max`."""
        self._broker = broker
        self._link = link
        self._id_bytes_max = id_bytes_max
        self.session: Session | None = None

    def refuse(self, message: Message, status: StatusCode, text: str) -> None:
        """Send the error of a message that is refused."""
        identifier = frames.reqrep_id(message)
        joining = message.type is MessageType.JOIN
        if self.session is None and (joining or identifier is not None):
            self.refuse_join(status, text, identifier)
        else:
            self.send_error(status, text, identifier)

    def refuse_join(self, status: StatusCode, text: str, identifier: str | None) -> None:
        """Send an error to a client without a number: a REP without `routing`."""
        identifier = self._short(identifier)
        self.write(
            frames.join_reply(
                status, client_id=ClientId.UNASSIGNED, identifier=identifier, text=text
            )
        )

    def send_error(self, status: StatusCode, text: str, identifier: str | None) -> None:
        """Send an error: a REP if there is an identifier of valid length, else a NOTIF."""
        identifier = self._short(identifier)
        number = self.session.number if self.session is not None else ClientId.UNASSIGNED
        self.write(frames.error_reply(status, text, client_id=number, identifier=identifier))

    def encode_failure(self, answer: bytes) -> bytes:  # noqa: ARG002
        """Return the error for messages whose commit failed; PUB has no acknowledgment."""
        number = self.session.number if self.session is not None else ClientId.UNASSIGNED
        text = str(LogUnavailable(NOT_WRITTEN))
        return frames.error_reply(
            StatusCode.SERVICE_UNAVAILABLE, text, client_id=number, identifier=None
        )

    def _short(self, identifier: str | None) -> str | None:
        """Return an identifier of valid length, None for a longer one."""
        if identifier is None or len(identifier.encode()) > self._id_bytes_max:
            return None
        return identifier

    def write(self, frame: bytes) -> None:
        """Send a frame of the broker's own; it does not count as a message."""
        if self.session is not None:
            self._broker.delivery.send(self.session, frame, 0)
        elif self._link.buffered > self._broker.settings.out_buffer_bytes_max:
            self._link.abort()
        else:
            self._link.write(frame)
