"""Whether a client is still there: a PING when it is silent, an end when it stays so (3.7)."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.core.broker import Broker
from penstock.gateway.fleximq import frames
from penstock.limits import FLEXIMQ_KEEPALIVE_INTERVALS_MAX

if TYPE_CHECKING:
    from penstock.core.timers import Timer

__all__ = ["Pulse"]


class Pulse:
    """The keep-alive of one client.

    Whatever the client sends only notes the time. The one timer looks at it when it is due, and
    then knows how much longer there is to wait.
    """

    __slots__ = ("_broker", "_dead", "_looking", "_seconds", "_send", "_timer", "heard")

    def __init__(
        self,
        broker: Broker,
        *,
        seconds: float,
        send: Callable[[bytes], None],
        dead: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._seconds = seconds
        self._send = send
        self._dead = dead
        self._timer: Timer | None = None
        self.start()

    def start(self) -> None:
        """Look from now on; the client counts as heard of, `heard` being the monotonic time."""
        self.heard = self._broker.clock.monotonic()
        self._looking = True
        if self._timer is None:
            self._timer = self._broker.timers.after(self._seconds, self._look)

    def rest(self) -> None:
        """Do not look until `start`. The timer runs on: this may be as often as messages come."""
        self._looking = False

    def stop(self) -> None:
        """Look no more."""
        self._looking = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._looking:
            return
        silent = self._broker.clock.monotonic() - self.heard
        wait = self._seconds
        if silent >= self._seconds * FLEXIMQ_KEEPALIVE_INTERVALS_MAX:
            self._dead()
            return
        if silent >= self._seconds:
            self._send(
                frames.ping(
                    timestamp_ms=self._broker.clock.now_us() // 1000,
                    interval_seconds=math.ceil(self._seconds),
                )
            )
        else:
            wait -= silent
        self._timer = self._broker.timers.after(wait, self._look)
