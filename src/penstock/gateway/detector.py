"""The first handler of a connection: detects its protocol and hands over to a gateway."""

from penstock.core.broker import Broker
from penstock.core.timers import Timer
from penstock.errors import UnrecognisedProtocol
from penstock.gateway.base import Gateway, refuse
from penstock.gateway.options import GatewayOptions
from penstock.limits import CHECKSUM_SECONDS_MAX
from penstock.ports import Handler, Link
from penstock.protocols import load
from penstock.wire.detect import Detected, conclude, detect, detect_order

__all__ = ["ProtocolDetector", "handler_for"]


def handler_for(broker: Broker, link: Link, options: GatewayOptions) -> Handler:
    """Return the handler of a new connection.

    It is the gateway of the listener's protocol, or a ProtocolDetector if the first bytes decide.
    The connection closes if it has no session after `handshake_seconds_max`.
    """
    detector = ProtocolDetector(broker, link, options)
    protocol = options.protocol
    if protocol is None or (options.order is None and len(protocol.orders) > 1):
        return detector
    return detector.new_gateway(Detected(protocol, options.order or protocol.orders[0]))


class ProtocolDetector:
    """Reads the first bytes of a connection, then sets the protocol's gateway as link handler."""

    def __init__(self, broker: Broker, link: Link, options: GatewayOptions) -> None:
        self._broker = broker
        self._link = link
        self._options = options
        self._waiting = b""
        self._settling: Timer | None = None
        self._deadline = broker.timers.after(options.handshake_seconds_max, self._timed_out)

    def received(self, data: memoryview) -> int:
        """See ports.Handler."""
        pinned = self._options.protocol
        try:
            if pinned is not None:
                detected = detect_order(data, pinned)
            else:
                detected = detect(data, bytes_max=self._options.handshake_bytes_max)
        except UnrecognisedProtocol as error:
            refuse(self._broker, self._link, error.reason)
            return len(data)
        if detected is None:
            self._wait_for_more(data)
            return 0
        return self._hand_over(detected).received(data)

    def _wait_for_more(self, data: memoryview) -> None:
        """Wait for more bytes, but not long for those that can only be the end of a packet."""
        self._waiting = bytes(data)
        if self._settling is None and conclude(self._waiting) is not None:
            self._settling = self._broker.timers.after(CHECKSUM_SECONDS_MAX, self._settle)

    def _settle(self) -> None:
        """Hand over: no more bytes came, and those that are there are whole."""
        detected = conclude(self._waiting)
        if detected is not None:
            self._hand_over(detected)
            # The link offers the waiting bytes again when it resumes.
            self._link.pause()
            self._link.resume()

    @property
    def established(self) -> bool:
        """See ports.Handler."""
        return False

    def drained(self) -> None:
        """See ports.Handler: nothing was written yet."""

    def starved(self) -> None:
        """See ports.Handler."""
        refuse(self._broker, self._link, "no memory")

    def ended(self) -> None:
        """See ports.Handler: no more bytes come, which may decide the protocol."""
        detected = conclude(self._waiting) if self._waiting else None
        if detected is None or self._options.protocol not in (None, detected.protocol):
            self._link.close()
            return
        gateway = self._hand_over(detected)
        self._broker.turn.end()  # these bytes cannot wait for a later turn
        gateway.received(memoryview(self._waiting))
        gateway.ended()

    def lost(self, reason: str) -> None:  # noqa: ARG002
        """See ports.Handler."""
        self._deadline.cancel()
        if self._settling is not None:
            self._settling.cancel()

    def _timed_out(self) -> None:
        detected = conclude(self._waiting)
        if detected is None:
            refuse(self._broker, self._link, "no protocol recognised in time")
            return
        gateway = self._hand_over(detected)
        self._broker.turn.end()
        # The link offers the waiting bytes again when it resumes.
        self._link.pause()
        self._link.resume()
        gateway.handshake_timed_out()

    def _hand_over(self, detected: Detected) -> Gateway:
        if self._settling is not None:
            self._settling.cancel()
        gateway = self.new_gateway(detected)
        self._link.set_handler(gateway)
        return gateway

    def new_gateway(self, detected: Detected) -> Gateway:
        """Return the gateway of a protocol, which takes over the handshake deadline."""
        make: type[Gateway] = load(detected.protocol.gateway)
        gateway = make(self._broker, self._link, self._options, order=detected.order)
        gateway.limit_handshake(self._deadline)
        return gateway
