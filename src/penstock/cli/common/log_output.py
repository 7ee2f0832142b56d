"""Log events of the broker on standard error, written by a thread.

Neither a reader of standard error that hangs nor a flood of events stops the event loop: events
beyond the limits are counted and left out.
"""

import collections
import contextlib
import os
import queue
import threading
import time
from typing import Any, Final

import structlog

from penstock.limits import LOG_EVENTS_PER_SECOND_MAX, LOG_LINES_WAITING_MAX

__all__ = ["EventRateLimit", "LineWriter"]

_CLOSE_SECONDS_MAX: Final = 1.0
_GATHER_SECONDS: Final = 0.02
"""Time after a line in which further ones are gathered, to be written together."""


class LineWriter:
    """A file for a structlog logger: a thread writes the lines to a descriptor."""

    def __init__(self, descriptor: int, *, lines_max: int = LOG_LINES_WAITING_MAX) -> None:
        self._descriptor = descriptor
        self._lines_max = lines_max
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._left_out = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue a line; count it instead if too many wait."""
        if self._lines.qsize() >= self._lines_max:
            self._left_out += 1
            return
        self._lines.put(line)

    def flush(self) -> None:
        """Do nothing: lines are written as soon as the reader takes them."""

    def close(self) -> None:
        """Write the lines that wait, as far as the reader takes them within a second."""
        self._lines.put(None)
        self._thread.join(_CLOSE_SECONDS_MAX)

    def _run(self) -> None:
        """Write the first line at once, and those that follow it closely together.

        Each time the thread wakes up it competes with the event loop for the interpreter lock.
        """
        while (line := self._lines.get()) is not None:
            self._write(line)
            time.sleep(_GATHER_SECONDS)
            lines, ended = self._waiting()
            if self._left_out:
                count, self._left_out = self._left_out, 0
                lines.append(f'level=warning event="log events left out" count={count}\n')
            self._write("".join(lines))
            if ended:
                break

    def _waiting(self) -> tuple[list[str], bool]:
        """Take the lines that wait, and whether `close` was called."""
        lines: list[str] = []
        with contextlib.suppress(queue.Empty):
            while (line := self._lines.get_nowait()) is not None:
                lines.append(line)
            return lines, True
        return lines, False

    def _write(self, line: str) -> None:
        data = line.encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            pass  # the reader is gone


class EventRateLimit:
    """A structlog processor: drops events of one name beyond a number in each second.

    The next event of that name has the number of those before it as `not_logged`.
    """

    def __init__(self, per_second_max: int = LOG_EVENTS_PER_SECOND_MAX) -> None:
        self._per_second_max = per_second_max
        self._second = 0
        self._counts: collections.Counter[str] = collections.Counter()
        self._dropped: collections.Counter[str] = collections.Counter()

    def __call__(self, _logger: object, _method: str, event: Any) -> Any:  # noqa: ANN401
        """Return the event, or raise DropEvent."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._counts.clear()
        name = event["event"]
        self._counts[name] += 1
        if self._counts[name] > self._per_second_max:
            self._dropped[name] += 1
            raise structlog.DropEvent
        if self._dropped and name in self._dropped:
            event["not_logged"] = self._dropped.pop(name)
        return event
