"""Rheos v1 clients: deliveries are bare payloads."""

from typing import ClassVar

from penstock._kernels import rheos1 as kernel
from penstock.core.sessions import Session
from penstock.gateway.rheos import RheosGateway, RheosRequest
from penstock.protocols import Protocol
from penstock.protocols.rheos1 import RHEOS1
from penstock.wire import rheos1
from penstock.wire.rheos import AckCode

__all__ = ["Rheos1Gateway"]


class Rheos1Gateway(RheosGateway):
    """One Rheos v1 connection."""

    protocol: ClassVar[Protocol] = RHEOS1

    def new_decoder(self) -> rheos1.BrokerDecoder:
        """See the base class."""
        return rheos1.BrokerDecoder(body_bytes_max=self.limits["body_bytes_max"])

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
        return rheos1.encode(rheos1.Acknowledgment(identifier, code))

    def positions(self, key: bytes, payload: bytes) -> bytes:
        """See the base class: a Response whose sender is the key."""
        return rheos1.encode(rheos1.Response(key, payload))

    def data_of(self, packet: RheosRequest) -> bytes:
        """See the base class."""
        return packet.payload if isinstance(packet, rheos1.Request) else b""

    def acknowledgments(self, count: int, *, first_offset: int) -> bytes:
        """See the base class."""
        log = self.broker.log
        return kernel.acknowledge(
            count, log_id=log.log_id, partition=log.partition, first_offset=first_offset
        )
