"""Counts like audit events, so that a client cannot fill the disk with them."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from penstock.limits import AUDIT_KINDS_MAX, AUDIT_REPEATS_MAX, AUDIT_WINDOW_SECONDS
from penstock.ports.audit import AuditEvent, AuditValue

__all__ = ["Repeats"]

_ALWAYS: Final = frozenset(
    {
        AuditEvent.STARTED,
        AuditEvent.STOPPED,
        AuditEvent.CONFIGURATION_CHANGED,
        AuditEvent.CONFIGURATION_REJECTED,
        AuditEvent.RULES_CHANGED,
        AuditEvent.PRINCIPALS_CHANGED,
    }
)
"""Events that only the operator causes."""
_ALIKE: Final = ("principal", "protocol", "method", "action", "act")
"""Fields in which like events are equal, besides the address of their peer. Not those that a client
can choose freely, such as a topic."""
_MANY: Final = "(many)"

_Kind = tuple[AuditEvent, str, tuple[AuditValue, ...]]


@dataclasses.dataclass(slots=True)
class _Count:
    window_ends: float
    written: int = 0
    suppressed: int = 0


class Repeats:
    """Decides which events are written: the first AUDIT_REPEATS_MAX of a kind in each window.

    Not safe for threads; the caller has a lock. Time is passed in, in seconds.
    """

    def __init__(
        self,
        *,
        repeats_max: int = AUDIT_REPEATS_MAX,
        kinds_max: int = AUDIT_KINDS_MAX,
        window_seconds: float = AUDIT_WINDOW_SECONDS,
    ) -> None:
        self._repeats_max = repeats_max
        self._kinds_max = kinds_max
        self._window_seconds = window_seconds
        self._counts: dict[_Kind, _Count] = {}
        self._kinds: Counter[AuditEvent] = Counter()

    def admit(self, event: AuditEvent, fields: Mapping[str, AuditValue], now: float) -> bool:
        """Return whether an event is written; otherwise it is counted."""
        if event in _ALWAYS:
            return True
        kind = _kind(event, fields)
        count = self._counts.get(kind)
        if count is None and self._kinds[event] >= self._kinds_max:
            kind = (event, _MANY, ())
            count = self._counts.get(kind)
        if count is None:
            count = self._counts[kind] = _Count(now + self._window_seconds)
            self._kinds[event] += 1
        if count.written >= self._repeats_max:
            count.suppressed += 1
            return False
        count.written += 1
        return True

    def ended(self, now: float) -> list[tuple[AuditEvent, dict[str, AuditValue]]]:
        """Return one event for each kind whose window is over and of which some were not written.

        Its field `repeated` is their number.
        """
        over = [kind for kind, count in self._counts.items() if count.window_ends <= now]
        found: list[tuple[AuditEvent, dict[str, AuditValue]]] = []
        for kind in over:
            suppressed = self._counts.pop(kind).suppressed
            self._kinds[kind[0]] -= 1
            if suppressed:
                event, peer, values = kind
                fields = dict(zip(_ALIKE, values, strict=False))
                known = {name: value for name, value in fields.items() if value is not None}
                found.append((event, {**known, "peer": peer, "repeated": suppressed}))
        return found


def _kind(event: AuditEvent, fields: Mapping[str, AuditValue]) -> _Kind:
    peer = str(fields.get("peer") or "")
    host, colon, port = peer.rpartition(":")
    if colon and port.isdigit():
        peer = host  # a client has many ports
    alike = tuple([fields.get(name) for name in _ALIKE])
    if event is AuditEvent.ADMINISTERED:
        # Acts are combined only if they changed the same things with the same outcome.
        names = fields.get("names")
        listed = tuple(names) if isinstance(names, Sequence) else ()
        alike += (hash((fields.get("name"), listed, fields.get("outcome"))),)
    return event, peer, alike
