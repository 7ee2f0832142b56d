"""The file layer: whole writes, or an error that is told."""

import errno
import os
from pathlib import Path

import pytest

from penstock.storage.files import Files
from tests.support.recorded_files import FailingFiles


def test_short_writes_and_many_buffers_arrive_whole_and_in_order(tmp_path: Path) -> None:
    buffers = [bytes([number % 256]) * (number % 7) for number in range(3000)]
    for files in (Files(), FailingFiles(write_bytes_max=13)):
        path = tmp_path / type(files).__name__
        handle = files.create(path)
        files.append(handle, buffers)
        files.append(handle, [memoryview(b"end"), bytearray(b"."), b""])
        files.sync(handle)
        files.close(handle)
        assert path.read_bytes() == b"".join(buffers) + b"end."
        assert files.size(path) == sum(map(len, buffers)) + 4


def test_a_file_that_is_there_is_not_created_again(tmp_path: Path) -> None:
    files = Files()
    files.close(files.create(tmp_path / "a"))
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "a")


def test_reading_ends_where_the_file_does(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    files = Files()
    assert files.read(tmp_path / "a", 4, 3) == b"456"
    assert files.read(tmp_path / "a", 8, 10) == b"89"
    assert files.read(tmp_path / "a", 10, 10) == b""
    with pytest.raises(FileNotFoundError):
        files.read(tmp_path / "b", 0, 1)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_short_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, most, at: pread(handle, min(most, size), at))
    assert Files().read(tmp_path / "a", 2, 5) == b"23456"
    assert Files().read(tmp_path / "a", 2, 100) == b"23456789"


def test_replace_leaves_the_old_file_when_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "a"
    Files().replace(path, b"old")
    for files in (
        FailingFiles(write=0),
        FailingFiles(write=0, short=2),
        FailingFiles(sync=0, failure=errno.EIO),
    ):
        with pytest.raises(OSError, match=r"No space|Input/output"):
            files.replace(path, b"new and longer")
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["a"]  # noqa: PTH208
    Files().replace(path, b"new")
    assert path.read_bytes() == b"new"


def test_names_are_in_order_and_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    files = Files()
    folder = tmp_path / "a" / "b" / "c"
    assert files.names(folder) == []
    files.make_folder(folder)
    files.make_folder(folder)
    for name in ("2", "1", "3"):
        files.close(files.create(folder / name))
    files.remove(folder / "3")
    files.remove(folder / "3")
    files.rename(folder / "1", folder / "9")
    assert files.names(folder) == ["2", "9"]
    assert files.free_bytes(folder) > 0


def test_truncate_cuts_behind_a_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    files = Files()
    files.truncate(tmp_path / "a", 4)
    handle = files.open(tmp_path / "a")
    files.append(handle, [b"x"])
    files.close(handle)
    assert (tmp_path / "a").read_bytes() == b"0123x"
