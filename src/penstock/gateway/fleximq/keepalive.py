"""Keep-alive (section 3.7): PING a silent client, then end its connection."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.gateway.fleximq import frames

if TYPE_CHECKING:
    from penstock.core.timers import Timer

__all__ = ["KeepAliveTimer"]


class KeepAliveTimer:
    """The keep-alive of one client, on one timer.

    When the timer is due it reads `last_received`, the monotonic time of the client's last bytes,
    and so knows how much longer to wait. Reading from the client does not touch the timer. The
    timestamps of PINGs without an answer are kept, so that a PONG can be told from one that answers
    no PING.
    """

    __slots__ = (
        "_active",
        "_broker",
        "_last_received",
        "_misses_max",
        "_seconds",
        "_send",
        "_started",
        "_timed_out",
        "_timer",
        "_unanswered",
    )

    def __init__(
        self,
        broker: Broker,
        *,
        seconds: float,
        misses_max: int,
        last_received: Callable[[], float],
        send: Callable[[bytes], None],
        timed_out: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._seconds = seconds
        self._misses_max = misses_max
        self._unanswered: tuple[int, ...] = ()
        self._last_received = last_received
        self._send = send
        self._timed_out = timed_out
        self._timer: Timer | None = None
        self.start()

    def start(self) -> None:
        """Check the client from now on; its silence is counted from now."""
        self._started = self._broker.clock.monotonic()
        self._active = True
        if self._timer is None:
            self._timer = self._broker.timers.after(self._seconds, self._check)

    def suspend(self) -> None:
        """Do not check until `start`. The timer runs on: this may be called for each message."""
        self._active = False

    def stop(self) -> None:
        """Stop the checks."""
        self._active = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answered(self, timestamp_ms: int) -> bool:
        """Return whether a PONG repeats the timestamp of a PING that has no answer yet."""
        if timestamp_ms not in self._unanswered:
            return False
        position = self._unanswered.index(timestamp_ms)
        self._unanswered = self._unanswered[position + 1 :]
        return True

    def _check(self) -> None:
        self._timer = None
        if not self._active:
            return
        silent = self._broker.clock.monotonic() - max(self._started, self._last_received())
        wait = self._seconds
        if silent >= self._seconds * self._misses_max:
            self._timed_out()
            return
        if silent >= self._seconds:
            now_ms = self._broker.clock.now_us() // 1000
            self._unanswered = (*self._unanswered, now_ms)[-self._misses_max :]
            interval = math.ceil(self._seconds)
            self._send(frames.ping(timestamp_ms=now_ms, interval_seconds=interval))
        else:
            wait -= silent
        self._timer = self._broker.timers.after(wait, self._check)
