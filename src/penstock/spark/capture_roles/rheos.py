"""Roles of Rheos v1 and v2."""

import functools
import uuid

from penstock._kernels import rheos1 as rheos1_kernel
from penstock._kernels import rheos2 as rheos2_kernel
from penstock.model import topic_name_from_binary
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.spark.capture_roles.role import NO_SENDER, Captured, CapturedSide, Role
from penstock.wire import rheos1, rheos2
from penstock.wire.rheos import OpCode

__all__ = ["rheos1_role", "rheos2_role"]


@functools.lru_cache(maxsize=4096)
def _uuid_text(identifier: bytes) -> str:
    return str(uuid.UUID(bytes=identifier))


class _Rheos1FromClient(Role):
    protocol = RHEOS1

    def scan(self, data: memoryview, start: int) -> int:
        return rheos1_kernel.scan(data, start, self.context.batch, self.context.topics, NO_SENDER)

    def record(self, packet: rheos1.Request) -> Captured | None:
        if packet.opcode is not OpCode.PUBLISH:
            return None
        topic = topic_name_from_binary(packet.name)
        return Captured(topic, packet.payload, _uuid_text(packet.client_id))


class _Rheos1FromBroker(Role):
    protocol = RHEOS1
    has_kernel = False

    def record(self, packet: rheos1.ClientPacket) -> Captured | None:
        if not isinstance(packet, rheos1.Response):
            return None
        return Captured("", packet.payload, _uuid_text(packet.sender_id))  # it carries no topic


class _Rheos2(Role):
    """Either side: a delivery is the published packet, unchanged."""

    protocol = RHEOS2

    def scan(self, data: memoryview, start: int) -> int:
        return rheos2_kernel.scan(data, start, self.context.batch, self.context.topics, NO_SENDER)

    def record(self, packet: rheos2.Packet) -> Captured | None:
        if not isinstance(packet, rheos2.Event) or packet.opcode is not OpCode.PUBLISH:
            return None
        topic = topic_name_from_binary(packet.name)
        return Captured(topic, packet.data, _uuid_text(packet.client_id))


def rheos1_role(side: CapturedSide) -> Role:
    """Return the role of a side of a Rheos v1 connection."""
    if side.from_client:
        return _Rheos1FromClient(rheos1.BrokerDecoder(), side.context, side.order)
    return _Rheos1FromBroker(rheos1.ClientDecoder(), side.context, side.order)


def rheos2_role(side: CapturedSide) -> Role:
    """Return the role of a side of a Rheos v2 connection."""
    decoder = rheos2.BrokerDecoder() if side.from_client else rheos2.ClientDecoder()
    return _Rheos2(decoder, side.context, side.order)
