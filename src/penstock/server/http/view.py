"""What HTTP shows of a running broker: its parts, and whether it is ready."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.server.flight.read_counts import ReadCounts

if TYPE_CHECKING:
    from penstock.storage.arrow.log import ArrowLog

__all__ = ["ServerView"]


@dataclasses.dataclass(slots=True)
class ServerView:
    """The parts of a process that its HTTP pages look at. The event loop's thread owns it."""

    broker: Broker
    log: "ArrowLog | None" = None
    """None where messages are not kept."""
    connections: Callable[[], int] = lambda: 0
    """How many there are, of all listeners."""
    flight_reads: ReadCounts = dataclasses.field(default_factory=ReadCounts)
    starting: bool = False
    stopping: bool = False
    started_at: float = dataclasses.field(default_factory=time.time)
    """Seconds since the epoch."""
    requests: dict[int, int] = dataclasses.field(default_factory=dict)
    """HTTP requests answered, by the first digit of their status."""
    client: int = 0
    """The number of the sender of what is published over HTTP, once there is any."""

    @property
    def data(self) -> Path | None:
        """The data folder; None where messages are not kept."""
        return None if self.log is None else self.log.folder.parents[1]

    def not_ready(self) -> str | None:
        """Return why clients should not come now, None if they are welcome."""
        if self.starting:
            return "not all listeners take clients yet"
        if self.stopping:
            return "the broker is stopping"
        if self.log is not None and self.log.unavailable is not None:
            reason = self.log.unavailable.strerror or str(self.log.unavailable)
            return f"messages cannot be kept: {reason}"
        return None
