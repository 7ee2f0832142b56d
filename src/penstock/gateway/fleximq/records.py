"""Log records of messages that are not in a batch.

Their receivers are in the headers: for each routing entry a `to`, the client's number as text, and
a `path`. Replay leaves these records out: they were not meant for all subscribers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock._kernels.batch import Sender
from penstock.core.sessions import Session, sender_uuid
from penstock.gateway.fleximq import frames
from penstock.model import Form, Kind
from penstock.ports import Record
from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire import fleximq, messagepack
from penstock.wire.fleximq import ClientId, Header, Message, MessageType, ReqRep, Routing

__all__ = ["broker_reply", "record_of"]

_KINDS: Final[Mapping[MessageType, Kind]] = MappingProxyType(
    {
        MessageType.REQ: Kind.REQUEST,
        MessageType.REP: Kind.REPLY,
        MessageType.NOTIF: Kind.NOTIFY,
        MessageType.BCAST: Kind.BROADCAST,
        MessageType.PUB: Kind.PUBLISH,
    }
)
_FORMS: Final[Mapping[messagepack.Kind, Form]] = MappingProxyType(
    {messagepack.Kind.STR: Form.TEXT, messagepack.Kind.BIN: Form.BINARY}
)
_BROKER: Final = Sender(sender_uuid(ClientId.BROKER), ClientId.BROKER)


def record_of(
    session: Session, message: Message, *, timestamp_us: int, nodes: tuple[int, ...] = ()
) -> Record:
    """Return the record of a message from `session`, for clients of `nodes` too."""
    return _record(message, session.sender, session.name, timestamp_us, nodes)


def broker_reply(
    status: int,
    payload: bytes,
    *,
    client_id: int,
    identifier: str,
    timestamp_us: int,
    nodes: tuple[int, ...] = (),
) -> Record:
    """Return the record of a REP from client 1, the broker."""
    header = Header(
        routing=(Routing(client_id, ""),),
        reqrep=ReqRep(fleximq.ReqRepType.CORRELATION, identifier),
        status=status,
    )
    message = Message(MessageType.REP, ClientId.BROKER, header, payload)
    return _record(message, _BROKER, str(int(ClientId.BROKER)), timestamp_us, nodes)


def _record(
    message: Message, sender: Sender, sender_name: str, timestamp_us: int, nodes: tuple[int, ...]
) -> Record:
    header = message.header
    return Record(
        FLEXIMQ,
        _KINDS[message.type],
        header.topic or "",
        fleximq.raw_value(message.payload),
        sender,
        sender_name,
        timestamp_us,
        form=_form(message.payload),
        private=True,
        headers=tuple(
            entry
            for target in header.routing or ()
            for entry in (("to", b"%d" % target.client_id), ("path", target.path.encode()))
        ),
        correlation=frames.reqrep_id(message),
        status=header.status,
        nodes=nodes,
    )


def _form(payload: bytes) -> Form:
    """Return the MessagePack form in which a payload holds its value."""
    if not payload:
        return Form.MESSAGEPACK
    kind, _, _ = messagepack.head(payload, 0)
    return _FORMS.get(kind, Form.MESSAGEPACK)
