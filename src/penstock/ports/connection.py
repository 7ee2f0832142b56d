"""The two ends of a connection, and the clock."""

from collections.abc import Callable
from typing import Protocol as Port
from typing import runtime_checkable

from penstock._kernels.gathered import Gathered
from penstock.memory import Account

__all__ = ["AcknowledgedLink", "Clock", "Handler", "Link", "UnprovenLink"]


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
    def host(self) -> str:
        """The peer's IP address; empty for a socket file or a program."""

    @property
    def certificate_names(self) -> frozenset[str]:
        """The names in the peer's verified certificate; empty if there is none."""

    @property
    def has_left(self) -> bool:
        """Whether the peer has closed its side. It is known while the link is paused, too."""

    @property
    def buffered(self) -> int:
        """Bytes written that the system has not taken yet."""

    @property
    def congested(self) -> bool:
        """Whether too much is buffered; `Handler.drained` is called when it is no longer so."""

    def set_handler(self, handler: "Handler") -> None:
        """Replace the handler that the transport calls."""

    def write(self, data: bytes | memoryview) -> None:
        """Send `data` after all earlier writes; drop it after `close`.

        It is not copied, and must not change: many links may hold it until they have sent it.
        """

    def write_gathered(self, frames: Gathered) -> None:
        """Send frames like `write`, without a copy as far as the system takes them at once.

        Their values are only there until this returns.
        """

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


@runtime_checkable
class UnprovenLink(Port):
    """A link whose peer may be forged until it has shown that it receives."""

    def when_proven(self, action: Callable[[], None]) -> None:
        """Call `action` when the peer has shown that it receives, at once if it has already.

        Until then the link sends no more bytes than it received.
        """


@runtime_checkable
class AcknowledgedLink(Port):
    """A link whose peer's system acknowledges the bytes it received."""

    @property
    def written(self) -> int:
        """All bytes written to the link."""

    def acknowledged(self) -> int:
        """Return how many of them the peer's system has acknowledged, at least."""


class Handler(Port):
    """Processes a connection's input. Gateways implement it, transports call it."""

    def received(self, data: memoryview) -> int:
        """Process bytes of the peer; return how many were taken.

        The rest is offered again, with more bytes. `data` is borrowed for the call.
        """

    @property
    def established(self) -> bool:
        """Whether the peer has a session; without one it gives way if there are too many peers."""

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
