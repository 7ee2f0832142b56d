"""Roles of herald."""

from typing import Final

from penstock._kernels import herald as herald_kernel
from penstock.errors import OutOfSequence
from penstock.protocols.herald import HERALD
from penstock.spark.capture_roles.role import NO_SENDER, Captured, CapturedSide, Role
from penstock.wire import herald

__all__ = ["herald_role"]

_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999; a later time is treated as missing."""


class _HeraldFromClient(Role):
    protocol = HERALD

    def scan(self, data: memoryview, start: int) -> int:
        context = self.context
        return herald_kernel.scan(
            data, start, context.batch, context.topics, NO_SENDER, order=self.order
        )

    def record(self, packet: herald.Packet) -> Captured | None:
        match packet:
            case herald.HandshakePub(_, client_id) | herald.HandshakeSub(_, client_id):
                self.sender = client_id
            case herald.Publish(channel, message):
                return Captured(self.context.channels[channel], message, self.sender)
            case herald.Message() | herald.HandshakeAck() | herald.Error():
                raise OutOfSequence("from a client", type(packet).__name__)
        return None


class _HeraldFromBroker(Role):
    protocol = HERALD
    has_kernel = False

    def record(self, packet: herald.Packet) -> Captured | None:
        match packet:
            case herald.Message(channel, timestamp, message):
                time_us = timestamp if timestamp <= _TIME_US_MAX else 0
                topic = self.context.channels[channel]
                return Captured(topic, message, "", timestamp_us=time_us)
            case (
                herald.Publish()
                | herald.HandshakePub()
                | herald.HandshakeSub()
                | herald.Subscribe()
                | herald.Unsubscribe()
            ):
                raise OutOfSequence("from a broker", type(packet).__name__)
        return None


def herald_role(side: CapturedSide) -> Role:
    """Return the role of a side of a herald connection."""
    role = _HeraldFromClient if side.from_client else _HeraldFromBroker
    return role(herald.Decoder(order=side.order), side.context, side.order)
