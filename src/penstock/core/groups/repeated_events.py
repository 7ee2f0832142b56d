"""Log events of groups that may come many times a second: the first, then their number."""

import dataclasses

import structlog

from penstock.core.timers import Timer, Timers
from penstock.limits import GROUP_LOG_SECONDS

__all__ = ["RepeatedEvents"]

log = structlog.get_logger("penstock.groups")

_Value = str | int


@dataclasses.dataclass(slots=True)
class _Repeats:
    """Events since the last line, and the fields of the newest."""

    timer: Timer
    count: int = 0
    fields: dict[str, _Value] = dataclasses.field(default_factory=dict)


class RepeatedEvents:
    """Warnings of one name. Each group has a line for the first, then one in GROUP_LOG_SECONDS.

    Such a line has the fields of the newest event, and `repeated`, the number of events since the
    line before it.
    """

    def __init__(self, event: str, timers: Timers) -> None:
        self._event = event
        self._timers = timers
        self._repeats: dict[str, _Repeats] = {}  # no more than there are groups

    def warn(self, group: str, **fields: _Value) -> None:
        """Log an event of a group, or count it."""
        repeats = self._repeats.get(group)
        if repeats is None:
            self._start(group)
            log.warning(self._event, group=group, **fields)
        else:
            repeats.count += 1
            repeats.fields = fields

    def flush(self) -> None:
        """Log all counts now."""
        for group, repeats in list(self._repeats.items()):
            repeats.timer.cancel()
            self._end(group)

    def _start(self, group: str) -> None:
        timer = self._timers.after(GROUP_LOG_SECONDS, lambda: self._next(group))
        self._repeats[group] = _Repeats(timer)

    def _next(self, group: str) -> None:
        if self._end(group):
            self._start(group)

    def _end(self, group: str) -> bool:
        """Log the count of a group; return whether there were events."""
        repeats = self._repeats.pop(group)
        if repeats.count:
            log.warning(self._event, group=group, **repeats.fields, repeated=repeats.count)
        return repeats.count > 0
