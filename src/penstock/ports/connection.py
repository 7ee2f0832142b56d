"""The two ends of a connection, and the clock."""

from typing import Protocol as Port

__all__ = ["Clock", "Handler", "Link"]


class Clock(Port):
    """Time; tests provide their own."""

    def now_us(self) -> int:
        """Return microseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from any start."""


class Link(Port):
    """The broker's end of a connection. A transport provides it, a gateway holds it."""

    @property
    def connection(self) -> int:
        """Number of the connection; log events and the API identify it by this."""

    @property
    def peer(self) -> str:
        """Address, path or process at the other end, for log events."""

    @property
    def buffered(self) -> int:
        """Bytes that were written and not yet passed to the system."""

    @property
    def congested(self) -> bool:
        """Whether enough is buffered that writers should wait for `Handler.drained`."""

    def write(self, data: bytes) -> None:
        """Send `data` after everything written before; after `close` it is dropped."""

    def pause(self) -> None:
        """Stop reading until `resume`; bytes that have arrived wait too.

        Each `pause` needs its own `resume`.
        """

    def resume(self) -> None:
        """Read again, the bytes that waited first."""

    def close(self) -> None:
        """Close the connection once everything written is sent."""

    def abort(self) -> None:
        """Close the connection now."""


class Handler(Port):
    """Receives the events of a connection. A gateway is one; a transport calls it."""

    def received(self, data: memoryview) -> int:
        """Process bytes of the peer; return how many were consumed.

        The rest is passed again, with more behind it. `data` is borrowed for the call.
        """

    def drained(self) -> None:
        """Note that the link is no longer congested."""

    def ended(self) -> None:
        """Note that the peer sends nothing more; answers can still be written.

        The handler closes the link after the last answer.
        """

    def lost(self, reason: str) -> None:
        """Note that the connection is gone. No method is called after it."""
