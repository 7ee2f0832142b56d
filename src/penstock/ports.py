"""What the broker needs from outside, as protocols: time, a connection's two ends, a log."""

from typing import Protocol

from penstock._kernels.batch import Batch

__all__ = ["Clock", "Handler", "Link", "LogWriter"]


class Clock(Protocol):
    """Time, so that tests can bring their own."""

    def now_us(self) -> int:
        """Return microseconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from any start."""


class Link(Protocol):
    """The broker's end of a connection: a transport gives it, a gateway holds it."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for logs: an address, a path or a process."""

    @property
    def buffered(self) -> int:
        """Bytes that were written and are not with the system yet."""

    @property
    def congested(self) -> bool:
        """Whether so much is buffered that more should wait; the handler learns when it drained."""

    def write(self, data: bytes) -> None:
        """Send `data` behind all that was written before; after `close` it is dropped."""

    def pause(self) -> None:
        """Take no more input until `resume`; what is there already waits too.

        Each `pause` needs its own `resume`.
        """

    def resume(self) -> None:
        """Take input again, what waited first."""

    def close(self) -> None:
        """End the connection once all that was written is sent."""

    def abort(self) -> None:
        """End the connection now."""


class Handler(Protocol):
    """The other side of a link: a gateway is one, a transport calls it."""

    def received(self, data: memoryview) -> int:
        """Take bytes of the peer; return how many are done with.

        The rest comes again, with more behind it. `data` is borrowed for the call.
        """

    def drained(self) -> None:
        """Learn that the link is no longer congested."""

    def lost(self, reason: str) -> None:
        """Learn that the connection is gone. Nothing is called after it."""


class LogWriter(Protocol):
    """Where published messages go before anyone is told that they are safe."""

    @property
    def log_id(self) -> int:
        """48 bits that tell this log from others; part of every message id."""

    @property
    def partition(self) -> int:
        """The partition that this writer fills."""

    @property
    def durable_offset(self) -> int:
        """All messages below this offset are as safe as the log's durability promises."""

    def append(self, batch: Batch) -> int:
        """Take all rows of `batch`, copying what it keeps; return the offset of the first."""

    def append_one(self) -> int:
        """Take one message that is not in a batch; return its offset."""
