"""Rheos v2 clients: packets in both directions carry a checksum."""

from typing import ClassVar

from penstock._kernels import rheos2 as kernel
from penstock.core.sessions import Session
from penstock.gateway.rheos import RheosGateway, RheosRequest
from penstock.protocols import Protocol
from penstock.protocols.rheos2 import RHEOS2
from penstock.wire import rheos2
from penstock.wire.rheos import AckCode, OpCode

__all__ = ["Rheos2Gateway"]


class Rheos2Gateway(RheosGateway):
    """One Rheos v2 connection."""

    protocol: ClassVar[Protocol] = RHEOS2

    def new_decoder(self) -> rheos2.BrokerDecoder:
        """See the base class."""
        return rheos2.BrokerDecoder(body_bytes_max=self.limits["body_bytes_max"])

    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """See the base class: PUBLISH needs an existing topic."""
        broker = self.broker
        return kernel.scan(
            data,
            start,
            broker.batch,
            broker.topics,
            session.sender,
            learn_topics=False,
            permits=permits,
            body_bytes_max=self.limits["body_bytes_max"],
        )

    def acknowledgment(self, code: AckCode, identifier: bytes) -> bytes:
        """See the base class."""
        return rheos2.encode(rheos2.Acknowledgment(code, identifier))

    def positions(self, key: bytes, payload: bytes) -> bytes:
        """See the base class: an event without a name, whose client is the key."""
        return rheos2.encode(rheos2.Event(key, OpCode.PUBLISH, b"", payload))

    def data_of(self, packet: RheosRequest) -> bytes:
        """See the base class."""
        return packet.data if isinstance(packet, rheos2.Event) else b""

    def acknowledgments(self, count: int, *, first_offset: int) -> bytes:
        """See the base class."""
        log = self.broker.log
        return kernel.acknowledge(
            count, log_id=log.log_id, partition=log.partition, first_offset=first_offset
        )
