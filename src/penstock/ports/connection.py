"""The two ends of a connection, and the clock."""

from typing import Protocol as Port

from penstock.memory import Account

__all__ = ["Clock", "Handler", "Link"]


class Clock(Port):
    """Time; tests provide their own."""

    def now_us(self) -> int:
        """Return microseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from any start."""


class Link(Port):
    """The broker's end of a connection: a transport provides it, a gateway uses it."""

    account: Account
    """The memory that the connection holds."""

    @property
    def connection(self) -> int:
        """The connection's number in logs and in the API."""

    @property
    def peer(self) -> str:
        """The peer for logs: an address, a path or a process."""

    @property
    def buffered(self) -> int:
        """Bytes written that the system has not taken yet."""

    @property
    def congested(self) -> bool:
        """Whether too much is buffered; `Handler.drained` is called when it is no longer so."""

    def set_handler(self, handler: "Handler") -> None:
        """Replace the handler that the transport calls."""

    def write(self, data: bytes) -> None:
        """Send `data` after all earlier writes; drop it after `close`."""

    def pause(self) -> None:
        """Stop calling `Handler.received` until `resume`, also for bytes that arrived before.

        Each `pause` needs its own `resume`.
        """

    def resume(self) -> None:
        """Undo one `pause`; after the last, offer waiting bytes and read again."""

    def close(self) -> None:
        """Close the connection once all written bytes are sent."""

    def abort(self) -> None:
        """Close the connection at once."""


class Handler(Port):
    """Processes a connection's input. Gateways implement it, transports call it."""

    def received(self, data: memoryview) -> int:
        """Process bytes of the peer; return how many were taken.

        The rest is offered again, with more bytes. `data` is borrowed for the call.
        """

    def drained(self) -> None:
        """Continue sending: the link is no longer congested."""

    def starved(self) -> None:
        """Refuse the incomplete frame of the peer, which finds no memory, and close the link."""

    def ended(self) -> None:
        """Handle half-close: the peer sends nothing more, but may still read.

        The handler closes the link after its last reply.
        """

    def lost(self, reason: str) -> None:
        """Release the connection, which is closed. No other method is called after this."""
