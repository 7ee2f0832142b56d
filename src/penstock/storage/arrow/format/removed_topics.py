"""Messages that retention removed, by topic: `<horizon>.removed.json` in the partition's folder.

All topics share the offsets of a partition, so a position below the horizon does not tell whether
messages of a certain topic were removed behind it. This file does. It is on disk before log.json
has its horizon, so the file with the horizon of log.json is complete; those with others are
leftovers. In a folder of an earlier version there is none: any topic may have lost messages.
"""

from pathlib import Path
from typing import Final

import msgspec
import structlog

from penstock._kernels.crc32c import crc32c
from penstock.limits import REMOVED_TOPICS_CHARACTERS_MAX, REMOVED_TOPICS_MAX
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import REMOVED, base_offset_of, removed_path
from penstock.storage.files import Files

__all__ = ["RemovedTopics", "load_removed", "save_removed"]

log = structlog.get_logger("penstock.log")

_FORMAT: Final = 1
_ENTRY_BYTES: Final = 32
"""Of a topic in the file besides its name, at most."""
_FILE_BYTES_MAX: Final = (
    6 * REMOVED_TOPICS_CHARACTERS_MAX + _ENTRY_BYTES * REMOVED_TOPICS_MAX + 1024
)
"""A character of a name has six bytes at most in JSON."""


class RemovedTopics(msgspec.Struct, frozen=True):
    """Messages that were removed below `horizon`.

    The removed messages of a topic are before its offset in `ends`, and the last of them is in the
    row group that ends there. A topic that is not in `ends` has lost no message from `known_from`
    on. Before `known_from`, any topic may have lost messages.
    """

    horizon: int
    known_from: int
    ends: dict[str, int] = {}

    def until(self, selection: Selection, *, start: int, end: int) -> int:
        """Return the offset before which selected messages of a range may have been removed.

        It is `start` if none was.
        """
        end = min(end, self.horizon)
        if start >= end:
            return start
        if not selection.by_topic:
            return end
        last = max(start, self.known_from)
        later = {name: each for name, each in self.ends.items() if each > last}
        hits = selection.wanted_names(list(later))
        wanted = (each for each, hit in zip(later.values(), hits, strict=True) if hit)
        return min(max(wanted, default=last), end)

    def bounded(self) -> "RemovedTopics":
        """Return this with at most REMOVED_TOPICS_MAX topics: those that lost messages last."""
        known_from, kept, size = self.known_from, self.ends, 0
        if len(kept) > REMOVED_TOPICS_MAX or sum(map(len, kept)) > REMOVED_TOPICS_CHARACTERS_MAX:
            kept = {}
            for name, end in sorted(self.ends.items(), key=lambda each: each[1], reverse=True):
                size += len(name)
                if len(kept) == REMOVED_TOPICS_MAX or size > REMOVED_TOPICS_CHARACTERS_MAX:
                    known_from = max(known_from, end)
                    break
                kept[name] = end
        kept = {name: end for name, end in kept.items() if end > known_from}
        return RemovedTopics(self.horizon, known_from, kept)


class _Document(msgspec.Struct, frozen=True):
    format: int
    removed: RemovedTopics
    crc32c: str


def _spelled(removed: RemovedTopics) -> bytes:
    checksum = crc32c([msgspec.json.encode(removed)])
    return msgspec.json.encode(_Document(_FORMAT, removed, f"{checksum:08x}")) + b"\n"


def save_removed(files: Files, folder: Path, removed: RemovedTopics, *, before: int) -> None:
    """Write what was removed below a new horizon; it is on disk when this returns.

    The file of the horizon `before` stays: log.json has that until the caller changes it. Files of
    other horizons are removed.
    """
    for name in files.names(folder):
        horizon = base_offset_of(name, REMOVED)
        if horizon is not None and horizon not in {before, removed.horizon}:
            files.remove(folder / name)
    files.replace(removed_path(folder, removed.horizon), _spelled(removed))


def load_removed(files: Files, folder: Path, horizon: int) -> RemovedTopics | None:
    """Return what was removed below a horizon; None if it is not known."""
    path = removed_path(folder, horizon)
    try:
        data = files.read(path, 0, _FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        document = msgspec.json.decode(data, type=_Document)
    except msgspec.MsgspecError as error:
        log.warning("record of removed topics not used", path=str(path), error=str(error))
        return None
    if data != _spelled(document.removed) or document.removed.horizon != horizon:
        log.warning("record of removed topics not used", path=str(path), error="it was changed")
        return None
    return document.removed
