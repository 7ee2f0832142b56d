"""Up to where groups of readers have got: `DATA/groups/<group>.json`, for lag to be seen.

A group is a name that a reader gives itself. What it has read is its own to remember (Spark has its
checkpoint); this is a report of it, replaced whole and not waited for to be on disk.
"""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import CallerError, ErrorCode
from penstock.limits import GROUP_NAME_CHARACTERS_MAX
from penstock.storage.arrow.files import TEMPORARY

__all__ = ["GROUPS", "GroupOffsets", "GroupState", "InvalidGroup", "check_group_name"]

GROUPS: Final = "groups"
"""The folder's name in the data folder."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{GROUP_NAME_CHARACTERS_MAX - 1}}}")
_SUFFIX: Final = ".json"
_BYTES_MAX: Final = 1 << 20


class InvalidGroup(CallerError):
    """An invalid name of a consumer group."""

    code = ErrorCode.BAD_OPTION
    template = (
        f"{{name!r}} is no name for a group: up to {GROUP_NAME_CHARACTERS_MAX} letters, "
        f"digits, '_', '-' and '.', not starting with '.' or '-'"
    )

    name: str


class GroupState(msgspec.Struct, frozen=True):
    """What a group has reported: the next offset of each partition, and when, in microseconds.

    `lost` counts the offsets that were gone before it could read them.
    """

    group: str
    offsets: dict[int, int]
    lost: int = 0
    updated_us: int = 0


def check_group_name(name: str) -> None:
    """Raise InvalidGroup."""
    if not _NAME.fullmatch(name):
        raise InvalidGroup(name)


class GroupOffsets:
    """The groups of a data folder. Any process may report; the last one counts."""

    def __init__(self, data: Path) -> None:
        self._folder = data / GROUPS

    def commit(self, group: str, offsets: Mapping[int, int], *, lost: int = 0) -> None:
        """Report where a group is; offsets of partitions that are not named stay as they were.

        `lost` is added to what it has lost so far. Raise InvalidGroup or OSError.
        """
        check_group_name(group)
        before = self.load(group)
        state = GroupState(
            group=group,
            offsets={**(before.offsets if before else {}), **offsets},
            lost=(before.lost if before else 0) + lost,
            updated_us=time.time_ns() // 1000,
        )
        self._folder.mkdir(exist_ok=True)
        path = self._path(group)
        temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
        temporary.write_bytes(msgspec.json.encode(state) + b"\n")
        temporary.replace(path)

    def load(self, group: str) -> GroupState | None:
        """Return what a group has reported, None if nothing that can be read."""
        check_group_name(group)
        return self._read(self._path(group))

    def all(self) -> dict[str, GroupState]:
        """Return all groups by name, in order."""
        found = {}
        paths = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
        for path in paths:
            state = self._read(path)
            if state is not None and _NAME.fullmatch(state.group):
                found[state.group] = state
        return found

    def forget(self, group: str) -> None:
        """Take a group out, if it is there."""
        check_group_name(group)
        self._path(group).unlink(missing_ok=True)

    def _path(self, group: str) -> Path:
        return self._folder / f"{group}{_SUFFIX}"

    def _read(self, path: Path) -> GroupState | None:
        try:
            with path.open("rb") as file:
                return msgspec.json.decode(file.read(_BYTES_MAX), type=GroupState)
        except (OSError, ValueError):
            return None
