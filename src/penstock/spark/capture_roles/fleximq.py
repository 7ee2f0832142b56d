"""The role of fleximq."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from penstock._kernels import fleximq as fleximq_kernel
from penstock._kernels.batch import Sender
from penstock.model import Kind
from penstock.protocols.fleximq import FLEXIMQ
from penstock.spark.capture_roles.role import NO_SENDER, Captured, CapturedSide, Role
from penstock.wire import fleximq
from penstock.wire.fleximq import MessageType

__all__ = ["fleximq_role"]

_KINDS: Final[Mapping[MessageType, Kind]] = MappingProxyType(
    {
        MessageType.REQ: Kind.REQUEST,
        MessageType.REP: Kind.REPLY,
        MessageType.NOTIF: Kind.NOTIFY,
        MessageType.BCAST: Kind.BROADCAST,
        MessageType.PUB: Kind.PUBLISH,
    }
)


class _Fleximq(Role):
    """Either side: a message has the client id of its sender, also when the broker delivers it."""

    protocol = FLEXIMQ
    _sender = NO_SENDER

    def scan(self, data: memoryview, start: int) -> int:
        """See the base class: a run has one sender, that of the message at `start`."""
        if len(data) < start + 6 or data[start + 1] != MessageType.PUB:
            return super().scan(data, start)
        number = int.from_bytes(data[start + 2 : start + 6], "big")
        if not number:
            return super().scan(data, start)
        if number != self._sender.number:
            self._sender = Sender(bytes(16), number)
            self.sender = str(number)
        context = self.context
        return fleximq_kernel.scan(
            data, start, context.batch, context.topics, self._sender, headers=context.headers
        )

    def record(self, packet: fleximq.Message) -> Captured | None:
        header = packet.header
        kind = _KINDS.get(packet.type)
        if kind is None or (kind is Kind.REPLY and header.routing is None):
            return None  # a REP without routing answers JOIN
        return Captured(
            header.topic or "",
            fleximq.raw_value(packet.payload),
            str(packet.client_id),
            kind,
            headers=[
                entry
                for target in header.routing or ()
                for entry in (("to", b"%d" % target.client_id), ("path", target.path.encode()))
            ],
            correlation=header.reqrep.id if header.reqrep is not None else None,
            status=header.status,
        )


def fleximq_role(side: CapturedSide) -> Role:
    """Return the role of a side of a fleximq connection."""
    decoder = fleximq.BrokerDecoder() if side.from_client else fleximq.ClientDecoder()
    return _Fleximq(decoder, side.context, side.order)
