"""Offsets that consumer groups have reported: `DATA/groups/<group>.json`.

A consumer group is a name that a reader gives itself. A reader outside the broker keeps its own
position (Spark has its checkpoint); this is a report of it, so that lag can be shown. Such a report
replaces the file and is not synced to disk. Of a group whose members are clients of the broker, the
file is the state itself: it has the progress of the group, and is synced.
"""

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import CallerError, ErrorCode, GroupDamaged, GroupDiffers, LogInUse
from penstock.limits import (
    GROUP_NAME_CHARACTERS_MAX,
    GROUP_PARTITIONS_MAX,
    GROUP_SUBSCRIPTION_BYTES_MAX,
    GROUPS_LOCK_SECONDS_MAX,
    GROUPS_MAX,
    GROUPS_PER_PRINCIPAL_MAX,
)
from penstock.ports import GroupProgress, GroupState, GroupSummary, Subscription
from penstock.storage.files import TEMPORARY, Files

__all__ = [
    "GROUPS",
    "GroupOffsets",
    "InvalidGroup",
    "TooManyGroups",
    "check_group_count",
    "check_group_name",
    "decoded",
    "owner_of",
    "updated",
]

GROUPS: Final = "groups"
"""Name of the folder in the data folder."""

_NAME: Final = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{GROUP_NAME_CHARACTERS_MAX - 1}}}")
_SUFFIX: Final = ".json"
_BYTES_MAX: Final = 4 << 20
_LOCK_RETRY_SECONDS: Final = 0.002


class InvalidGroup(CallerError):
    """A name that a consumer group cannot have."""

    code = ErrorCode.BAD_OPTION
    template = (
        f"{{name!r}} is no name for a group: up to {GROUP_NAME_CHARACTERS_MAX} letters, "
        f"digits, '_', '-' and '.', not starting with '.' or '-'"
    )

    name: str


class TooManyGroups(CallerError):
    """A new consumer group, or the partitions of one, would exceed their limit."""

    code = ErrorCode.TOO_MANY_GROUPS
    template = "the limit of {maximum} {what} is reached; remove groups that are not used"

    maximum: int
    what: str


def check_group_name(name: str) -> None:
    """Raise InvalidGroup."""
    if not _NAME.fullmatch(name):
        raise InvalidGroup(name)


def check_group_count(
    count: int, owner: str, owners: Callable[[], Iterable[str]], owner_groups_max: int
) -> None:
    """Raise TooManyGroups if there is no room for another group of an owner.

    `owners` returns the owner of each group.
    """
    if count >= GROUPS_MAX:
        raise TooManyGroups(GROUPS_MAX, "consumer groups")
    if owner and sum(each == owner for each in owners()) >= owner_groups_max:
        raise TooManyGroups(owner_groups_max, "consumer groups of one principal")


def decoded(group: str, data: bytes) -> GroupState:
    """Return the stored state of a group; raise GroupDamaged."""
    try:
        return msgspec.json.decode(data, type=GroupState)
    except ValueError as error:
        raise GroupDamaged(group, str(error)) from None


class _Owner(msgspec.Struct):
    """The owner in a stored state, whose other fields are not decoded."""

    owner: str = ""


def owner_of(data: bytes) -> str:
    """Return the owner in a stored state; empty if the state has none or is damaged."""
    try:
        return msgspec.json.decode(data, type=_Owner).owner
    except ValueError:
        return ""


def updated(
    before: GroupState | None,
    group: str,
    offsets: Mapping[int, int],
    *,
    lost: int,
    now_us: int,
    subscription: Subscription | None,
    progress: GroupProgress | None = None,
    owner: str = "",
) -> GroupState:
    """Return the state of a consumer group after a report; raise TooManyGroups or GroupDiffers."""
    if progress is None and before is not None and before.progress is not None:
        # The report would replace the state of messages that members have not processed.
        raise GroupDiffers(
            group, "has clients of the broker as members, so the broker keeps its position"
        )
    merged = {**(before.offsets if before else {}), **offsets}
    if len(merged) > GROUP_PARTITIONS_MAX:
        raise TooManyGroups(GROUP_PARTITIONS_MAX, "partitions of a consumer group")
    return GroupState(
        group=group,
        offsets=merged,
        lost=(before.lost if before else 0) + lost,
        updated_us=now_us,
        subscription=None if _is_too_long(subscription) else subscription,
        progress=progress,
        owner=before.owner if before else owner,
    )


def _is_too_long(subscription: Subscription | None) -> bool:
    return len(msgspec.json.encode(subscription)) > GROUP_SUBSCRIPTION_BYTES_MAX


class GroupOffsets:
    """The consumer groups of a data folder: a `ports.ConsumerGroups`.

    Any process may report; the last report counts. The folder is locked while a state is changed.
    """

    is_shared = False

    def __init__(self, data: Path, files: Files | None = None) -> None:
        self._folder = data / GROUPS
        self._files = files or Files()
        self.owner_groups_max = GROUPS_PER_PRINCIPAL_MAX
        self._owners: dict[str, str] = {}  # by the name of each file that was read

    def commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int = 0,
        subscription: Subscription | None = None,
        progress: GroupProgress | None = None,
        owner: str = "",
    ) -> None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        self._folder.mkdir(exist_ok=True)
        with self._locked():
            self._commit(
                group,
                offsets,
                lost=lost,
                subscription=subscription,
                progress=progress,
                owner=owner,
            )

    def _commit(
        self,
        group: str,
        offsets: Mapping[int, int],
        *,
        lost: int,
        subscription: Subscription | None,
        progress: GroupProgress | None,
        owner: str,
    ) -> None:
        before = self.load(group)
        now_us = time.time_ns() // 1000
        state = updated(
            before,
            group,
            offsets,
            lost=lost,
            now_us=now_us,
            subscription=subscription,
            progress=progress,
            owner=owner,
        )
        path = self._path(group)
        if before is None and not path.exists():
            names = [path.name for path in self._folder.iterdir()]
            check_group_count(
                len(names), owner, lambda: self._owners_of(names), self.owner_groups_max
            )
        data = msgspec.json.encode(state) + b"\n"
        if progress is not None:
            self._files.replace(path, data)
            return
        temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}")
        temporary.write_bytes(data)
        temporary.replace(path)

    def load(self, group: str) -> GroupState | None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        try:
            return self._read(group)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def all(self) -> dict[str, GroupSummary]:
        """See ports.ConsumerGroups."""
        found = {}
        paths = sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else []
        for path in paths:
            with contextlib.suppress(OSError, GroupDamaged):
                summary = self._read(path.name.removesuffix(_SUFFIX)).summary
                if _NAME.fullmatch(summary.group):
                    found[summary.group] = summary
        return found

    def forget(self, group: str) -> None:
        """See ports.ConsumerGroups."""
        check_group_name(group)
        path = self._path(group)
        if path.exists():
            with self._locked():
                path.unlink(missing_ok=True)
                self._owners.pop(path.name, None)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let no other thread or process change a group; raise OSError if one does for too long.

        A state is read, changed and written: of two changes at a time, one would be undone.
        """
        deadline = time.monotonic() + GROUPS_LOCK_SECONDS_MAX
        while True:
            try:
                lock = self._files.lock(self._folder)
                break
            except LogInUse:
                if time.monotonic() > deadline:
                    reason = "another process changes the groups"
                    raise TimeoutError(errno.ETIMEDOUT, reason, str(self._folder)) from None
                time.sleep(_LOCK_RETRY_SECONDS)
        try:
            yield
        finally:
            self._files.close(lock)

    def _owners_of(self, names: Iterable[str]) -> list[str]:
        """Return the owners of groups by the names of their files; each file is read once."""
        known, self._owners = self._owners, {}
        for name in names:
            if name not in known:
                with contextlib.suppress(OSError):
                    known[name] = owner_of((self._folder / name).read_bytes())
            self._owners[name] = known.get(name, "")
        return list(self._owners.values())

    def _path(self, group: str) -> Path:
        return self._folder / f"{group}{_SUFFIX}"

    def _read(self, group: str) -> GroupState:
        """Return the state in the file of a group; raise GroupDamaged or OSError."""
        with self._path(group).open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise GroupDamaged(group, f"it has more than {_BYTES_MAX} bytes")
        return decoded(group, data)
