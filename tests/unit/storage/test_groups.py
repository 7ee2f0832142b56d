"""Groups report where they are, under names that stay in their folder."""

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import GroupDamaged, GroupDiffers, LogInUse
from penstock.ports import GroupProgress, GroupState, PendingRun, Subscription
from penstock.storage import group_offsets
from penstock.storage.files import Files
from penstock.storage.group_offsets import GroupOffsets, InvalidGroup, TooManyGroups, updated
from penstock.storage.memory import MemoryGroups


def test_a_group_is_where_it_was_reported_last(tmp_path: Path) -> None:
    groups = GroupOffsets(tmp_path)
    assert groups.all() == {}
    assert groups.load("bronze") is None
    groups.commit("bronze", {0: 10})
    groups.commit("bronze", {0: 12, 1: 3}, lost=4)
    groups.commit("bronze", {1: 5}, lost=1)
    groups.commit("gold-7.b", {0: 1})
    found = groups.load("bronze")
    assert found is not None
    assert (found.offsets, found.lost) == ({0: 12, 1: 5}, 5)
    assert found.updated_us > 0
    assert list(groups.all()) == ["bronze", "gold-7.b"]
    assert not list((tmp_path / "groups").glob("*.new"))
    groups.forget("bronze")
    groups.forget("bronze")
    assert list(groups.all()) == ["gold-7.b"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"group": "bronze"}'])
def test_a_damaged_state_is_kept_until_the_group_is_removed(tmp_path: Path, data: bytes) -> None:
    groups = GroupOffsets(tmp_path)
    groups.commit("bronze", {0: 10})
    path = tmp_path / "groups" / "bronze.json"
    path.write_bytes(data)
    progress = GroupProgress(next=11)
    for call in (
        lambda: groups.load("bronze"),
        lambda: groups.commit("bronze", {0: 11}),
        lambda: groups.commit("bronze", {0: 11}, progress=progress),
    ):
        with pytest.raises(GroupDamaged, match="bronze is damaged"):
            call()
    assert groups.all() == {}
    assert path.read_bytes() == data
    groups.forget("bronze")
    groups.commit("bronze", {0: 11})
    assert isinstance(groups.load("bronze"), GroupState)


def test_a_report_that_cannot_be_read_now_is_not_taken_for_none(tmp_path: Path) -> None:
    groups = GroupOffsets(tmp_path)
    groups.commit("bronze", {0: 10})
    path = tmp_path / "groups" / "bronze.json"
    path.unlink()
    path.symlink_to(path)  # it exists, and cannot be opened
    for call in (lambda: groups.load("bronze"), lambda: groups.commit("bronze", {0: 1})):
        with pytest.raises(OSError, match="Too many levels"):
            call()
    assert groups.all() == {}


def test_the_progress_of_members_is_kept_until_the_group_is_removed(tmp_path: Path) -> None:
    groups = GroupOffsets(tmp_path)
    progress = GroupProgress(next=9, pending=(PendingRun(3, 2, 1),), dead=(1,), ordered=True)
    orders = Subscription(patterns=("orders/#",))
    groups.commit("billing", {0: 3}, subscription=orders, progress=progress)
    found = GroupOffsets(tmp_path).load("billing")
    assert found is not None
    assert (found.offsets, found.subscription, found.progress) == ({0: 3}, orders, progress)
    assert [path.name for path in (tmp_path / "groups").iterdir()] == ["billing.json"]
    with pytest.raises(GroupDiffers, match="billing has clients of the broker as members"):
        groups.commit("billing", {0: 7})
    assert groups.load("billing") == found
    groups.forget("billing")
    groups.commit("billing", {0: 7})
    found = groups.load("billing")
    assert found is not None
    assert (found.offsets, found.progress) == ({0: 7}, None)


def test_a_report_that_was_being_stored_does_not_replace_the_progress_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting = threading.Event()

    class LockedFiles(Files):
        def lock(self, folder: Path) -> int:
            try:
                return super().lock(folder)
            except LogInUse:
                is_waiting.set()
                raise

    readers = GroupOffsets(tmp_path)
    members = GroupOffsets(tmp_path, LockedFiles())  # as another process has them
    readers.commit("billing", {0: 1})
    joining = threading.Thread(
        target=lambda: members.commit("billing", {0: 3}, progress=GroupProgress(next=3))
    )

    def slow(*args: Any, **more: Any) -> GroupState:
        if not joining.is_alive():
            joining.start()
            while joining.is_alive() and not is_waiting.wait(0.01):
                pass  # it comes to its end, unless it waits for the report
        return updated(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(group_offsets, "updated", slow)
        readers.commit("billing", {0: 2})
        joining.join()
    found = readers.load("billing")
    assert found is not None
    assert (found.offsets, found.progress) == ({0: 3}, GroupProgress(next=3))


def test_a_process_that_holds_the_lock_for_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "GROUPS_LOCK_SECONDS_MAX", 0.0)
    groups = GroupOffsets(tmp_path)
    groups.commit("billing", {0: 1})
    files = Files()
    lock = files.lock(tmp_path / "groups")
    for call in (lambda: groups.commit("billing", {0: 2}), lambda: groups.forget("billing")):
        with pytest.raises(OSError, match="another process changes the groups"):
            call()
    files.close(lock)
    found = groups.load("billing")
    assert found is not None
    assert found.offsets == {0: 1}
    groups.forget("billing")
    assert groups.load("billing") is None


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", ".x", "a b", "ä", "x" * 129])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    groups = GroupOffsets(tmp_path)
    for call in (groups.load, groups.forget):
        with pytest.raises(InvalidGroup, match="no name for a group"):
            call(name)
    with pytest.raises(InvalidGroup):
        groups.commit(name, {0: 1})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [GroupOffsets, lambda _: MemoryGroups()], ids=["files", "memory"])
def test_groups_and_their_partitions_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(group_offsets, "GROUPS_MAX", 2)
    monkeypatch.setattr(group_offsets, "GROUP_PARTITIONS_MAX", 3)
    groups = kind(tmp_path)
    groups.commit("a", {0: 1})
    groups.commit("b", {0: 1})
    with pytest.raises(TooManyGroups, match="2 consumer groups"):
        groups.commit("c", {0: 1})
    groups.commit("a", {1: 1, 2: 1})
    with pytest.raises(TooManyGroups, match="3 partitions"):
        groups.commit("a", {3: 1})
    groups.forget("b")
    groups.commit("c", {0: 1})
    assert list(groups.all()) == ["a", "c"]


def test_a_report_is_read_up_to_its_limit(tmp_path: Path) -> None:
    groups = GroupOffsets(tmp_path)
    groups.commit("bronze", {0: 10})
    path = tmp_path / "groups" / "bronze.json"
    report = path.read_bytes().rstrip()
    path.write_bytes(report.rjust(4 << 20))
    assert groups.load("bronze") is not None
    path.write_bytes(report.rjust((4 << 20) + 1))
    with pytest.raises(GroupDamaged, match="more than 4194304 bytes"):
        groups.load("bronze")


def test_a_list_of_groups_does_not_have_their_messages(tmp_path: Path) -> None:
    groups = GroupOffsets(tmp_path)
    pending = tuple(PendingRun(2 * number, 1, 0) for number in range(10_000))
    progress = GroupProgress(next=20_000, pending=pending, dead=tuple(range(10_000)))
    for number in range(40):
        groups.commit(f"g{number}", {0: 0}, progress=progress)
    tracemalloc.start()
    found = groups.all()
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {(each.unacknowledged, each.dead) for each in found.values()} == {(10_000, 10_000)}
    assert len(found) == 40
    assert kept < 200_000
    assert most < 5_000_000, "one state at a time: it has about two megabytes"
