"""Deduplication: the keys of the messages that were published last.

A client may publish a message with a key. A second message with the key, of the same principal and
to the same topic, is not stored: it is acknowledged as the first one was, or will be. The log keeps
a digest of each key in the column `correlation`, from which the keys of earlier runs are read when
the first message with a key arrives.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import InvalidMessageKey
from penstock.limits import (
    DEDUPE_ENTRY_BYTES,
    DEDUPE_KEY_BYTES_MAX,
    DEDUPE_KEYS_MAX,
    DEDUPE_SECONDS,
)
from penstock.memory import MemoryBudget, Purpose
from penstock.model import Durability
from penstock.ports import Clock, Receipt

__all__ = [
    "CORRELATION_PREFIX",
    "Deduplication",
    "KeyLoader",
    "StoredKey",
    "correlation_of",
    "digest_of_correlation",
    "key_digest",
]

CORRELATION_PREFIX: Final = "dedupe:"
_CORRELATION: Final = re.compile(CORRELATION_PREFIX + "([0-9a-f]{32})")
_DIGEST_BYTES: Final = 16
_LEVEL_ENTRIES: Final = 1024
"""Memory is counted in steps of so many entries."""


class StoredKey(NamedTuple):
    """The key of a message in the log: its digest, the message's offset and its time."""

    digest: bytes
    offset: int
    timestamp_us: int


KeyLoader: TypeAlias = Callable[[int, Callable[[Iterable[StoredKey]], None]], None]
"""Reads the keys of messages since a time, in microseconds, and passes them on in their order."""


class _Entry(NamedTuple):
    offset: int
    commit: int
    durability: Durability
    timestamp_us: int


def key_digest(principal: str, topic: str, key: bytes) -> bytes:
    """Return the digest of a key; raise InvalidMessageKey if it is empty or too long."""
    if not 1 <= len(key) <= DEDUPE_KEY_BYTES_MAX:
        raise InvalidMessageKey(len(key), DEDUPE_KEY_BYTES_MAX)
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (principal.encode(), topic.encode(), key):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def correlation_of(digest: bytes) -> str:
    """Return what the log has in the column `correlation` for a message with a key."""
    return CORRELATION_PREFIX + digest.hex()


def digest_of_correlation(text: str) -> bytes | None:
    """Return the digest that `correlation_of` has written, None for any other text."""
    found = _CORRELATION.fullmatch(text)
    return None if found is None else bytes.fromhex(found[1])


class Deduplication:
    """The keys of the last `seconds`, at most `keys_max`: then the oldest is forgotten.

    One thread owns it.
    """

    def __init__(
        self,
        clock: Clock,
        memory: MemoryBudget,
        *,
        seconds: float = DEDUPE_SECONDS,
        keys_max: int = DEDUPE_KEYS_MAX,
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._window_us = int(seconds * 1_000_000)
        self._keys_max = keys_max
        self._entries: dict[bytes, _Entry] = {}  # the oldest first
        self._deleted: dict[str, tuple[int, int]] = {}  # next offset, and the time
        self._levelled = 0
        self._is_loaded = False
        self._waiting: list[Callable[[], None]] = []
        self.load: KeyLoader | None = None
        """Reads the keys of earlier runs; None if the log keeps no messages."""
        self.duplicates = 0
        """Messages that were not stored."""
        self.forgotten = 0
        """Keys that were forgotten before their time, because there were too many."""

    def __len__(self) -> int:
        return len(self._entries)

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call `then` once the keys of earlier runs are known: at once, or later."""
        if self._is_loaded:
            then()
            return
        self._waiting.append(then)
        if len(self._waiting) > 1:
            return
        if self.load is None:
            self._loaded(())
        else:
            self.load(self._clock.now_us() - self._window_us, self._loaded)

    def _loaded(self, keys: Iterable[StoredKey]) -> None:
        for digest, offset, timestamp_us in keys:
            # What the log has at a start is on disk: its commit is before the first one.
            self._put(digest, _Entry(offset, 0, Durability.FSYNC, timestamp_us))
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def topic_deleted(self, topic: str, *, next_offset: int) -> None:
        """Forget the keys of a topic's messages, which are before `next_offset`."""
        self._deleted.pop(topic, None)  # so that it is the newest
        self._deleted[topic] = (next_offset, self._clock.now_us())
        if len(self._deleted) > self._keys_max:
            del self._deleted[next(iter(self._deleted))]

    def find(self, digest: bytes, topic: str) -> Receipt | None:
        """Return the receipt of the message that has a key, and count a duplicate; else None."""
        self._forget_old()
        entry = self._entries.get(digest)
        if entry is None or entry.offset < self._deleted.get(topic, (0, 0))[0]:
            return None
        self.duplicates += 1
        return Receipt(entry.offset, entry.commit, entry.durability)

    def add(self, digest: bytes, receipt: Receipt) -> None:
        """Keep the key of a message that was appended now."""
        self._put(digest, _Entry(*receipt, self._clock.now_us()))

    def failed(self, written_commit: int) -> None:
        """Forget the keys of messages that were not written: their commits have failed."""
        lost = [key for key, entry in self._entries.items() if entry.commit > written_commit]
        for key in lost:
            del self._entries[key]

    def _put(self, digest: bytes, entry: _Entry) -> None:
        self._entries.pop(digest, None)  # so that it is the newest
        self._entries[digest] = entry
        if len(self._entries) > self._keys_max:
            del self._entries[next(iter(self._entries))]
            self.forgotten += 1
        self._count_memory()

    def _forget_old(self) -> None:
        oldest_us = self._clock.now_us() - self._window_us
        while self._entries:
            digest, entry = next(iter(self._entries.items()))
            if entry.timestamp_us >= oldest_us:
                break
            del self._entries[digest]
        while self._deleted:
            topic, (_, deleted_us) = next(iter(self._deleted.items()))
            if deleted_us >= oldest_us:
                break
            del self._deleted[topic]  # older keys are gone, too
        self._count_memory()

    def _count_memory(self) -> None:
        steps = -(-len(self._entries) // _LEVEL_ENTRIES)
        if steps != self._levelled:
            self._levelled = steps
            self._memory.level(Purpose.KEYS, steps * _LEVEL_ENTRIES * DEDUPE_ENTRY_BYTES)
