"""Decides which records of clients that may resume are valid, and until when.

A record with a lower claim than another one of the same client is ignored: its node was suspended
while the client moved on. An expired record is not loaded, and is removed later.
"""

import time

import msgspec

from penstock.limits import KAFKA_SESSIONS_MAX, RESUME_SECONDS_MAX

__all__ = ["SessionRecords"]


class _Facts(msgspec.Struct, frozen=True):
    """The fields of a `KeptSession` that are needed here."""

    node: int = -1
    claim: int = 0
    until_us: int = 0


class SessionRecords:
    """The records of clients that were read so far. Not thread-safe."""

    def __init__(self) -> None:
        self._facts: dict[str, _Facts] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._facts)

    def clear(self) -> None:
        """Forget all records."""
        self._facts.clear()

    def note(self, key: str, value: bytes | None) -> bool | None:
        """Note a record; return whether it is valid, None if it is ignored."""
        if value is None:
            self._facts.pop(key, None)
            return False
        try:
            found = msgspec.json.decode(value, type=_Facts)
        except ValueError:
            return None
        known = self._facts.pop(key, None)
        if known is not None and 0 < found.claim < known.claim:
            self._facts[key] = known
            return None
        now_us = _now_us()
        if not found.until_us:  # from an earlier version: its age is not known
            until_us = now_us + round(RESUME_SECONDS_MAX * 1e6)
            found = msgspec.structs.replace(found, until_us=until_us)
        self._facts[key] = found
        return found.until_us >= now_us

    def expired(self, *, count: int) -> list[tuple[str, int]]:
        """Return keys and nodes of up to `count` expired records, the oldest first.

        The oldest records above KAFKA_SESSIONS_MAX count as expired.
        """
        now_us = _now_us()
        excess = len(self._facts) - KAFKA_SESSIONS_MAX
        found: list[tuple[str, int]] = []
        for place, (key, facts) in enumerate(self._facts.items()):
            if place < excess or facts.until_us < now_us:
                found.append((key, facts.node))
                if len(found) == count:
                    break
        return found


def _now_us() -> int:
    return time.time_ns() // 1000
