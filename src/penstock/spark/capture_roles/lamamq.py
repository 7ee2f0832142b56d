"""Roles of LamaMQ."""

from typing import Any

from penstock._kernels import lamamq as lamamq_kernel
from penstock.decode.lamamq import AwaitedIds, keyless_name_end
from penstock.errors import OutOfSequence
from penstock.model import ByteOrder
from penstock.protocols.lamamq import LAMAMQ
from penstock.spark.capture_roles.role import (
    NO_SENDER,
    CaptureContext,
    Captured,
    CapturedSide,
    Role,
)
from penstock.wire import lamamq

__all__ = ["lamamq_role"]


class _FromClient(Role):
    protocol = LAMAMQ
    decoder: lamamq.BrokerDecoder
    _open = False
    _answers = False  # a client that registers a hook may answer hook calls

    def __init__(self, context: CaptureContext, order: ByteOrder, first_bytes: bytes) -> None:
        self._keyless_name_end = keyless_name_end(first_bytes, order)
        decoder = lamamq.BrokerDecoder(order=order, key_required=not self._keyless_name_end)
        decoder.awaited = AwaitedIds(
            lambda number: self._answers and number >= lamamq.BROKER_ID_BIT
        )
        super().__init__(decoder, context, order)

    def scan(self, data: memoryview, start: int) -> int:
        context = self.context
        if not self._open:
            return super().scan(data, start)
        end = lamamq_kernel.scan(
            data,
            start,
            context.batch,
            context.topics,
            NO_SENDER,
            order=self.order,
            answers_awaited=self._answers,
        )
        if end != start:
            self.decoder.skipped()
        return end

    def decode_at(self, data: memoryview, start: int) -> tuple[Any, int] | None:
        """See the base class: a name without a key is decoded alone."""
        if not self.sender and self._keyless_name_end:
            data = data[: self._keyless_name_end]
        return super().decode_at(data, start)

    def record(self, packet: lamamq.FromClient) -> Captured | None:
        match packet:
            case lamamq.Authentication(name):
                self.sender = name
            case lamamq.VersionChoice():
                self._open = True
            case lamamq.Register():
                self._answers = True
            case lamamq.Push(_, message):
                return _record(message, self.sender)
            case lamamq.Forward():
                raise OutOfSequence("from a client", "Forward")
        return None


class _FromBroker(Role):
    protocol = LAMAMQ
    has_kernel = False

    def __init__(self, context: CaptureContext, order: ByteOrder) -> None:
        decoder = lamamq.ClientDecoder(order=order)
        decoder.awaited = AwaitedIds(lambda number: number < lamamq.BROKER_ID_BIT)
        super().__init__(decoder, context, order)

    def record(self, packet: lamamq.FromBroker) -> Captured | None:
        return _record(packet.message, "") if isinstance(packet, lamamq.Forward) else None


def _record(message: lamamq.Message, sender: str) -> Captured:
    return Captured(
        message.routing_key,
        message.payload,
        sender,
        created_us=message.created_at * 1_000_000,
        headers=message.headers,
    )


def lamamq_role(side: CapturedSide) -> Role:
    """Return the role of a side of a LamaMQ connection."""
    if side.from_client:
        return _FromClient(side.context, side.order, side.first_bytes)
    return _FromBroker(side.context, side.order)
