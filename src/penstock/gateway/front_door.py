"""The first handler of a connection: learns which protocol it speaks and hands it on."""

import structlog

from penstock.core.broker import Broker
from penstock.errors import UnrecognisedProtocol
from penstock.gateway.base import Gateway
from penstock.gateway.options import GatewayOptions
from penstock.ports import Link
from penstock.protocols import load
from penstock.wire.detect import Detected, conclude, detect

__all__ = ["FrontDoor"]

log = structlog.get_logger("penstock.gateway")


class FrontDoor:
    """Waits for the bytes that tell the protocol; from then on its gateway is asked instead.

    A connection that has no session by the handshake's deadline is closed.
    """

    def __init__(self, broker: Broker, link: Link, options: GatewayOptions) -> None:
        self._broker = broker
        self._link = link
        self._options = options
        self._inside: Gateway | None = None
        self._waiting = b""
        if options.protocol is not None:
            orders = options.protocol.orders
            order = options.order or (orders[0] if len(orders) == 1 else None)
            if order is not None:
                self._inside = self._gateway(Detected(options.protocol, order))
        self._deadline = broker.timers.after(options.handshake_seconds_max, self._too_late)

    def received(self, data: memoryview) -> int:
        """See ports.Handler."""
        if self._inside is not None:
            return self._inside.received(data)
        try:
            detected = detect(data, bytes_max=self._options.handshake_bytes_max)
        except UnrecognisedProtocol as error:
            self._refuse(error.reason)
            return len(data)
        if detected is None:
            self._waiting = bytes(data)
            return 0
        if self._options.protocol not in (None, detected.protocol):
            self._refuse("another protocol than the listener's")
            return len(data)
        self._waiting = b""
        self._inside = self._gateway(detected)
        return self._inside.received(data)

    def drained(self) -> None:
        """See ports.Handler."""
        if self._inside is not None:
            self._inside.drained()

    def ended(self) -> None:
        """See ports.Handler: what came is all there is, which may settle the protocol."""
        if self._inside is None and self._waiting:
            detected = conclude(self._waiting)
            if detected is not None and self._options.protocol in (None, detected.protocol):
                self._inside = self._gateway(detected)
                self._inside.received(memoryview(self._waiting))
        if self._inside is not None:
            self._inside.ended()
        else:
            self._link.close()

    def lost(self, reason: str) -> None:
        """See ports.Handler."""
        self._deadline.cancel()
        if self._inside is not None:
            self._inside.lost(reason)

    def _too_late(self) -> None:
        if self._inside is None:
            detected = conclude(self._waiting)
            if detected is None:
                self._refuse("no protocol recognised in time")
                return
            # What waits in the link comes again with the next byte, or now.
            self._inside = self._gateway(detected)
            self._link.pause()
            self._link.resume()
        if self._inside.session is None:
            self._inside.tell_too_late()
            self._refuse("no handshake in time")

    def _gateway(self, detected: Detected) -> Gateway:
        make: type[Gateway] = load(detected.protocol.gateway)
        return make(self._broker, self._link, self._options, order=detected.order)

    def _refuse(self, reason: str) -> None:
        self._broker.counters.connections_failed[reason] += 1
        log.info(
            "connection refused",
            connection=self._link.connection,
            peer=self._link.peer,
            reason=reason,
        )
        self._link.close()
