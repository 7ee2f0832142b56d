"""The first handler of a connection: detects its protocol and hands over to a gateway."""

from collections.abc import Mapping

from penstock.core.broker import Broker
from penstock.errors import UnrecognisedProtocol
from penstock.gateway.base import Gateway, refuse
from penstock.gateway.fleximq import FleximqGateway
from penstock.gateway.herald import HeraldGateway
from penstock.gateway.lamamq import LamaGateway
from penstock.gateway.options import GatewayOptions
from penstock.gateway.rheos1 import Rheos1Gateway
from penstock.gateway.rheos2 import Rheos2Gateway
from penstock.model import ByteOrder, Protocol
from penstock.ports import Handler, Link
from penstock.wire.detect import Detected, conclude, detect

__all__ = ["GATEWAYS", "ProtocolDetector", "handler_for"]

GATEWAYS: Mapping[Protocol, type[Gateway]] = {
    Protocol.RHEOS1: Rheos1Gateway,
    Protocol.RHEOS2: Rheos2Gateway,
    Protocol.FLEXIMQ: FleximqGateway,
    Protocol.HERALD: HeraldGateway,
    Protocol.LAMAMQ: LamaGateway,
}


_ONE_ORDER: Mapping[Protocol, ByteOrder] = {
    Protocol.RHEOS1: "little",
    Protocol.RHEOS2: "little",
    Protocol.FLEXIMQ: "big",
}
"""The protocols whose byte order is fixed; of the others the first bytes tell it."""


def handler_for(broker: Broker, link: Link, options: GatewayOptions) -> Handler:
    """Return the handler of a new connection.

    It is the gateway of the listener's protocol, or a ProtocolDetector if the first bytes decide.
    The connection closes if it has no session after `handshake_seconds_max`.
    """
    detector = ProtocolDetector(broker, link, options)
    protocol = options.protocol
    order = None if protocol is None else options.order or _ONE_ORDER.get(protocol)
    if protocol is None or order is None:
        return detector
    return detector.new_gateway(Detected(protocol, order))


class ProtocolDetector:
    """Reads the first bytes of a connection, then sets the protocol's gateway as link handler."""

    def __init__(self, broker: Broker, link: Link, options: GatewayOptions) -> None:
        self._broker = broker
        self._link = link
        self._options = options
        self._waiting = b""
        self._deadline = broker.timers.after(options.handshake_seconds_max, self._timed_out)

    def received(self, data: memoryview) -> int:
        """See ports.Handler."""
        try:
            detected = detect(data, bytes_max=self._options.frames.handshake_bytes_max)
        except UnrecognisedProtocol as error:
            refuse(self._broker, self._link, error.reason)
            return len(data)
        if detected is None:
            self._waiting = bytes(data)
            return 0
        if self._options.protocol not in (None, detected.protocol):
            refuse(self._broker, self._link, "another protocol than the listener's")
            return len(data)
        return self._hand_over(detected).received(data)

    def drained(self) -> None:
        """See ports.Handler: nothing was written yet."""

    def ended(self) -> None:
        """See ports.Handler: no more bytes come, which may decide the protocol."""
        detected = conclude(self._waiting) if self._waiting else None
        if detected is None or self._options.protocol not in (None, detected.protocol):
            self._link.close()
            return
        gateway = self._hand_over(detected)
        gateway.received(memoryview(self._waiting))
        gateway.ended()

    def lost(self, reason: str) -> None:  # noqa: ARG002
        """See ports.Handler."""
        self._deadline.cancel()

    def _timed_out(self) -> None:
        detected = conclude(self._waiting)
        if detected is None:
            refuse(self._broker, self._link, "no protocol recognised in time")
            return
        gateway = self._hand_over(detected)
        # The link offers the waiting bytes again when it resumes.
        self._link.pause()
        self._link.resume()
        gateway.handshake_timed_out()

    def _hand_over(self, detected: Detected) -> Gateway:
        gateway = self.new_gateway(detected)
        self._link.set_handler(gateway)
        return gateway

    def new_gateway(self, detected: Detected) -> Gateway:
        """Return the gateway of a protocol, which takes over the handshake deadline."""
        make = GATEWAYS[detected.protocol]
        gateway = make(self._broker, self._link, self._options, order=detected.order)
        gateway.limit_handshake(self._deadline)
        return gateway
