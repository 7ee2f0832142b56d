"""Deduplication: the keys of the messages that were published last.

A client may publish a message with a key. A second message with the key, of the same principal and
to the same topic, is not stored: it is acknowledged as the first one was, or will be. The log keeps
a digest of each key in the column `correlation`, from which the keys of earlier runs are read when
the first message with a key arrives.
"""

import hashlib
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.core.fair_shares import FairShares
from penstock.core.slices import Slices
from penstock.errors import InvalidMessageKey
from penstock.limits import (
    DEDUPE_ENTRY_BYTES,
    DEDUPE_KEY_BYTES_MAX,
    DEDUPE_KEYS_MAX,
    DEDUPE_SECONDS,
    DEDUPE_STEP_KEYS,
    DEDUPE_SWEEP_SECONDS,
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


_EARLIER_RUN: Final = ""
"""The owner of keys that were read from the log, which does not name their principals."""


class _Entry(NamedTuple):
    digest: bytes
    owner: str
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
    """The keys of the last `seconds`, at most `keys_max`.

    Above `keys_max`, the owner with the most keys loses its oldest one, so that many keys of one
    client do not displace those of others. One thread owns it. Long work is done in slices.
    """

    def __init__(
        self,
        clock: Clock,
        memory: MemoryBudget,
        slices: Slices,
        *,
        seconds: float = DEDUPE_SECONDS,
        keys_max: int = DEDUPE_KEYS_MAX,
    ) -> None:
        self._clock = clock
        self._memory = memory
        self._slices = slices
        self._window_us = int(seconds * 1_000_000)
        self._keys_max = keys_max
        self._entries: dict[bytes, _Entry] = {}
        self._by_owner: dict[str, deque[_Entry]] = {}
        """The oldest first. An entry that is not in `_entries` is stale, and passed over."""
        self._shares = FairShares()
        self._deleted: OrderedDict[str, tuple[int, int]] = OrderedDict()  # next offset, time
        self._levelled = 0
        self._sweep_at_us = 0
        self._is_sweeping = False
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
        self._slices.start(self._take_loaded(keys))

    def _take_loaded(self, keys: Iterable[StoredKey]) -> Iterator[None]:
        for number, (digest, offset, timestamp_us) in enumerate(keys, 1):
            # What the log has at a start is on disk: its commit is before the first one.
            entry = _Entry(digest, _EARLIER_RUN, offset, 0, Durability.FSYNC, timestamp_us)
            self._put(entry)
            if not number % DEDUPE_STEP_KEYS:
                yield
        self._is_loaded = True
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()
            yield

    def topic_deleted(self, topic: str, *, next_offset: int) -> None:
        """Forget the keys of a topic's messages, which are before `next_offset`."""
        self._deleted.pop(topic, None)  # so that it is the newest
        self._deleted[topic] = (next_offset, self._clock.now_us())
        if len(self._deleted) > self._keys_max:
            self._deleted.popitem(last=False)

    def find(self, digest: bytes, topic: str) -> Receipt | None:
        """Return the receipt of the message that has a key, and count a duplicate; else None."""
        oldest_us = self._oldest_us()
        self._sweep_sometimes(oldest_us)
        entry = self._entries.get(digest)
        if entry is None or entry.offset < self._deleted.get(topic, (0, 0))[0]:
            return None
        if entry.timestamp_us < oldest_us:  # the search for old keys has not reached this one
            self._remove(entry)
            self._count_memory()
            return None
        self.duplicates += 1
        return Receipt(entry.offset, entry.commit, entry.durability)

    def add(self, digest: bytes, receipt: Receipt, owner: str) -> None:
        """Keep the key of a message that was appended now on behalf of `owner`."""
        self._put(_Entry(digest, owner, *receipt, self._clock.now_us()))

    def failed(self, written_commit: int) -> None:
        """Forget the keys of messages that were not written: their commits have failed."""
        for owner, entries in list(self._by_owner.items()):
            while entries and entries[-1].commit > written_commit:
                entry = entries.pop()
                if self._entries.get(entry.digest) is entry:
                    self._remove(entry)
            if not entries:
                del self._by_owner[owner]
        self._count_memory()

    def _put(self, entry: _Entry) -> None:
        before = self._entries.get(entry.digest)
        if before is not None:
            self._remove(before)
        self._entries[entry.digest] = entry
        self._by_owner.setdefault(entry.owner, deque()).append(entry)
        self._shares.add(entry.owner)
        if len(self._entries) > self._keys_max:
            self._forget_oldest(self._shares.largest())
            self.forgotten += 1
        self._count_memory()

    def _remove(self, entry: _Entry) -> None:
        """Remove a key; its entry in `_by_owner` becomes stale."""
        del self._entries[entry.digest]
        self._shares.remove(entry.owner)

    def _forget_oldest(self, owner: str) -> None:
        """Forget the oldest key of an owner, which must have one."""
        entries = self._by_owner[owner]
        while True:
            entry = entries.popleft()
            if self._entries.get(entry.digest) is entry:
                self._remove(entry)
                break
        if not entries:
            del self._by_owner[owner]

    def _oldest_us(self) -> int:
        return self._clock.now_us() - self._window_us

    def _sweep_sometimes(self, oldest_us: int) -> None:
        """Search for old keys, unless that was done a moment ago."""
        now_us = oldest_us + self._window_us
        if not self._is_sweeping and now_us >= self._sweep_at_us:
            self._is_sweeping = True
            self._sweep_at_us = now_us + int(DEDUPE_SWEEP_SECONDS * 1_000_000)
            self._slices.start(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """Forget old keys and deletions in steps."""
        try:
            yield from self._forget_old()
        finally:
            self._count_memory()
            self._is_sweeping = False

    def _forget_old(self) -> Iterator[None]:
        done = 0
        for owner in list(self._by_owner):
            # Between two steps the entries of an owner may be replaced or removed.
            while (entries := self._by_owner.get(owner)) is not None:
                done += 1
                if not done % DEDUPE_STEP_KEYS:
                    self._count_memory()
                    yield
                    continue
                entry = entries[0]
                is_stale = self._entries.get(entry.digest) is not entry
                if not is_stale and entry.timestamp_us >= self._oldest_us():
                    break
                entries.popleft()
                if not is_stale:
                    self._remove(entry)
                if not entries:
                    del self._by_owner[owner]
        while self._deleted:
            topic, (_, deleted_us) = next(iter(self._deleted.items()))
            if deleted_us >= self._oldest_us():
                break
            del self._deleted[topic]  # older keys are gone, too
            done += 1
            if not done % DEDUPE_STEP_KEYS:
                yield

    def _count_memory(self) -> None:
        steps = -(-len(self._entries) // _LEVEL_ENTRIES)
        if steps != self._levelled:
            self._levelled = steps
            self._memory.level(Purpose.KEYS, steps * _LEVEL_ENTRIES * DEDUPE_ENTRY_BYTES)
