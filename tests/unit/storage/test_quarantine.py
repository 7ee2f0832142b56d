"""Bytes in quarantine are on disk before anything is cut off, whenever the power fails."""

from pathlib import Path

import pytest

from penstock.limits import WALK_BYTES
from penstock.storage.arrow.format.file_names import quarantine_folder
from penstock.storage.arrow.recover.quarantine import keep_bytes, only_zeros
from tests.support.power_cut import Disk
from tests.support.recorded_files import RecordedFiles

FOLDER = Path("/log/0")
SOURCE = FOLDER / "00000.arrows"
CONTENT = bytes(range(256)) * 8


def disk_after(files: RecordedFiles) -> Disk:
    disk = Disk(files)
    for operation in files.operations:
        disk.apply(operation)
    return disk


def test_a_copy_outlives_a_power_cut_as_soon_as_it_is_made() -> None:
    files = RecordedFiles({SOURCE: CONTENT})
    target = keep_bytes(files, FOLDER, SOURCE, position=100, length=1500)
    assert target.parent == quarantine_folder(FOLDER)
    states = list(disk_after(files).all(512))
    assert states
    for state in states:
        assert state[target] == CONTENT[100:1600]
        assert set(state) == {SOURCE, target}, "and no temporary file"


def test_a_copy_that_has_its_name_is_whole_wherever_the_power_fails() -> None:
    files = RecordedFiles({SOURCE: CONTENT})
    target = keep_bytes(files, FOLDER, SOURCE, position=0, length=len(CONTENT))
    disk = Disk(files)
    for operation in files.operations:
        disk.apply(operation)
        for state in disk.all(512):
            assert state.get(target, CONTENT) == CONTENT


def test_a_copy_whose_name_may_not_be_on_disk_is_synced_again() -> None:
    files = RecordedFiles({SOURCE: CONTENT})
    target = keep_bytes(files, FOLDER, SOURCE, position=0, length=10)
    begun = len(files.operations)
    assert keep_bytes(files, FOLDER, SOURCE, position=0, length=10) == target
    assert [each.kind for each in files.operations[begun:]] == ["sync folder"]


@pytest.mark.parametrize("length", [WALK_BYTES - 1, WALK_BYTES, WALK_BYTES + 1])
def test_long_ranges_are_copied_whole_and_other_bytes_get_a_copy_of_their_own(length: int) -> None:
    content = (b"0123456789abcde" * (WALK_BYTES // 15 + 2))[: WALK_BYTES + 10]
    files = RecordedFiles({SOURCE: content})
    first = keep_bytes(files, FOLDER, SOURCE, position=5, length=length)
    assert files.state[first] == content[5 : 5 + length]
    assert keep_bytes(files, FOLDER, SOURCE, position=5, length=length) == first, "stored once"
    other = RecordedFiles({**files.state, SOURCE: content[:-6] + b"!" + content[-5:]})
    second = keep_bytes(other, FOLDER, SOURCE, position=5, length=length)
    changed = length + 5 > len(content) - 6
    assert (second != first) == changed
    assert other.state[first] == content[5 : 5 + length], "never overwritten"


@pytest.mark.parametrize("length", [10, WALK_BYTES, WALK_BYTES + 10])
def test_only_the_bytes_of_a_range_are_searched_for_other_than_zeros(length: int) -> None:
    zeros = b"x" + bytes(length) + b"x"
    assert only_zeros(RecordedFiles({SOURCE: zeros}), SOURCE, position=1, length=length)
    for place in (1, length):
        content = bytearray(zeros)
        content[place] = 1
        files = RecordedFiles({SOURCE: bytes(content)})
        assert not only_zeros(files, SOURCE, position=1, length=length)
