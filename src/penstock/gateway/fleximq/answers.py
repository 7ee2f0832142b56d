"""What the broker itself says to one fleximq client."""

from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.errors import LogUnavailable
from penstock.gateway.base import NOT_WRITTEN
from penstock.gateway.fleximq import frames
from penstock.ports import Link
from penstock.wire.fleximq import ClientId, Message, MessageType, StatusCode

if TYPE_CHECKING:
    from penstock.core.sessions import Session

__all__ = ["Answers"]


class Answers:
    """The way back to a client, before it has joined and after.

    `session` is None until it has. A client that lets its answers pile up loses them, one that
    has not even joined its connection.
    """

    __slots__ = ("_broker", "_link", "session")

    def __init__(self, broker: Broker, link: Link) -> None:
        self._broker = broker
        self._link = link
        self.session: Session | None = None

    def refuse(self, message: Message, status: StatusCode, text: str) -> None:
        """Say why a message has no effect."""
        identifier = frames.reqrep_id(message)
        joining = message.type is MessageType.JOIN
        if self.session is None and (joining or identifier is not None):
            self.refuse_join(status, text, identifier)
        else:
            self.tell(status, text, identifier)

    def refuse_join(self, status: StatusCode, text: str, identifier: str | None) -> None:
        """Say it to a client that has no number yet, by a REP without `routing`."""
        self.write(
            frames.join_reply(
                status, client_id=ClientId.UNASSIGNED, identifier=identifier, text=text
            )
        )

    def tell(self, status: StatusCode, text: str, identifier: str | None) -> None:
        """Say it by a REP with an identifier that fits, else by a NOTIF."""
        number = self.session.number if self.session is not None else ClientId.UNASSIGNED
        self.write(frames.error_reply(status, text, client_id=number, identifier=identifier))

    def not_kept(self, answer: bytes) -> bytes:  # noqa: ARG002
        """Return what says that messages which were taken are lost; no `answer` said they were."""
        number = self.session.number if self.session is not None else ClientId.UNASSIGNED
        text = str(LogUnavailable(NOT_WRITTEN))
        return frames.error_reply(
            StatusCode.SERVICE_UNAVAILABLE, text, client_id=number, identifier=None
        )

    def write(self, frame: bytes) -> None:
        """Send a frame of the broker's own, which counts as no message."""
        if self.session is not None:
            self._broker.send(self.session, frame, 0)
        elif self._link.buffered > self._broker.settings.out_buffer_bytes_max:
            self._link.abort()
        else:
            self._link.write(frame)
