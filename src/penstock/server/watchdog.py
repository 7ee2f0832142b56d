"""Watchdog of the event loop: measures stalls and names their cause.

A timer of the loop marks each turn. A thread checks the mark: if it is overdue, the loop is
stalled, and the thread reads the stack of the loop's thread to find the function and the connection
at work. Nothing runs per message or per connection.
"""

import asyncio
import sys
import threading
import time
from types import FrameType
from typing import Final

import structlog

from penstock.core.stalls import Stall, Stalls
from penstock.limits import (
    STALL_LOG_SECONDS,
    STALL_SECONDS_MIN,
    WATCHDOG_INTERVAL_SECONDS,
)

__all__ = ["Watchdog"]

log = structlog.get_logger("penstock.watchdog")

_FRAMES_MAX: Final = 200
"""Frames of a stack that are read."""
_PACKAGE: Final = "penstock"


class Watchdog:
    """Watches the running event loop from `start` to `stop`."""

    def __init__(
        self,
        stalls: Stalls,
        *,
        stall_seconds: float = STALL_SECONDS_MIN,
        interval_seconds: float = WATCHDOG_INTERVAL_SECONDS,
        log_seconds: float = STALL_LOG_SECONDS,
    ) -> None:
        """Create it; a `stall_seconds` of 0 turns it off."""
        self._stalls = stalls
        self._stall_seconds = stall_seconds
        self._interval = interval_seconds
        self._log_seconds = log_seconds
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._due = 0.0  # when the loop's timer is due
        self._processor_seconds = 0.0  # of the loop's thread, at the last turn
        self._sampled = ("", "")  # cause and peer of the stall under way
        self._logged_at = float("-inf")
        self._unlogged = 0

    def start(self) -> None:
        """Watch the running loop; its thread is the caller's."""
        if not self._stall_seconds:
            return
        self._loop_thread = threading.get_ident()
        self._processor_seconds = time.thread_time()
        self._arm()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the timer."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    # --- In the loop's thread ---------------------------------------------------------------------

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = time.monotonic() + self._interval
        self._timer = loop.call_later(self._interval, self._turn)

    def _turn(self) -> None:
        processor = time.thread_time()
        late = max(time.monotonic() - self._due, 0.0)
        worked = min(processor - self._processor_seconds, late)
        self._processor_seconds = processor
        self._stalls.measure(late, worked)
        if late >= self._stall_seconds:
            self._stalled(late, worked)
        self._arm()

    def _stalled(self, seconds: float, processor_seconds: float) -> None:
        cause, peer = self._sampled
        self._sampled = ("", "")
        stall = Stall(seconds, processor_seconds, cause or "unknown", peer, time.time_ns() // 1000)
        self._stalls.add(stall)
        now = time.monotonic()
        if now - self._logged_at < self._log_seconds:
            self._unlogged += 1
            return
        log.warning(
            "event loop stalled",
            seconds=round(seconds, 3),
            processor_seconds=round(processor_seconds, 3),
            cause=stall.cause,
            client=peer or None,
            not_logged=self._unlogged,
        )
        self._logged_at, self._unlogged = now, 0

    # --- In the watchdog's thread -----------------------------------------------------------------

    def _watch(self) -> None:
        sampled_for = 0.0
        while not self._stopping.wait(self._interval):
            due = self._due
            if due != sampled_for and time.monotonic() - due >= self._stall_seconds:
                sampled_for = due
                frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001
                self._sampled = _describe(frame)


def _describe(frame: FrameType | None) -> tuple[str, str]:
    """Return the innermost functions of a stack, and the peer of the connection at work."""
    functions: list[str] = []
    peer = ""
    innermost = "" if frame is None else frame.f_code.co_qualname
    for _ in range(_FRAMES_MAX):
        if frame is None:
            break
        module = str(frame.f_globals.get("__name__", "?"))
        if module.startswith(_PACKAGE) and len(functions) < 3:
            functions.append(f"{module}.{frame.f_code.co_name}:{frame.f_lineno}")
        peer = peer or _peer(frame)
        frame = frame.f_back
    return " < ".join(functions) or innermost, peer


def _peer(frame: FrameType) -> str:
    """Return the peer of the link, gateway or session whose method a frame runs."""
    if not str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        return ""
    owner = frame.f_locals.get("self")
    for candidate in (owner, getattr(owner, "link", None), frame.f_locals.get("session")):
        found = getattr(candidate, "peer", None) or getattr(
            getattr(candidate, "link", None), "peer", None
        )
        if isinstance(found, str) and found:
            return found
    return ""
