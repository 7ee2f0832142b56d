"""The watermark of a folder: readers trust one that is whole and that moves."""

import os
from pathlib import Path

import pytest

from penstock.storage.arrow.write import watermark as module
from penstock.storage.arrow.write.watermark import WATERMARK, Watermark, read_watermark


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_readers_see_the_last_end_also_when_the_writer_has_gone(tmp_path: Path) -> None:
    assert read_watermark(tmp_path) is None
    before = open_files()
    writer = Watermark(tmp_path, 7)
    assert read_watermark(tmp_path) == 7
    assert (tmp_path / WATERMARK).stat().st_mode & 0o777 == 0o600
    writer.advance(1 << 40)
    assert read_watermark(tmp_path) == 1 << 40
    writer.close()
    writer.close()
    writer.advance(9)
    assert read_watermark(tmp_path) == 1 << 40
    assert open_files() == before
    Watermark(tmp_path, 3).close()
    assert read_watermark(tmp_path) == 3, "a new writer replaces it"


def test_a_watermark_that_cannot_be_written_is_removed_and_its_file_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_files()
    writer = Watermark(tmp_path, 7)

    def full(*_: object) -> int:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    writer.advance(8)
    assert not (tmp_path / WATERMARK).exists(), "it would not move any more"
    assert open_files() == before
    monkeypatch.undo()
    writer.advance(9)
    assert read_watermark(tmp_path) is None


def test_a_log_works_without_a_watermark(tmp_path: Path) -> None:
    writer = Watermark(tmp_path / "missing", 7)
    writer.advance(8)
    writer.close()
    assert read_watermark(tmp_path / "missing") is None


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 15])
def test_a_watermark_with_a_wrong_byte_is_none(tmp_path: Path, byte: int) -> None:
    Watermark(tmp_path, 7).close()
    before = open_files()
    data = bytearray((tmp_path / WATERMARK).read_bytes())
    assert len(data) == 16
    data[byte] ^= 1
    (tmp_path / WATERMARK).write_bytes(data)
    assert read_watermark(tmp_path) is None
    (tmp_path / WATERMARK).write_bytes(data[:15])
    assert read_watermark(tmp_path) is None
    assert open_files() == before


def test_a_write_that_is_in_progress_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watermark(tmp_path, 7).close()
    whole = (tmp_path / WATERMARK).read_bytes()
    torn = b"\x08" + whole[1:]
    for tries, expected in (
        (module.WATERMARK_TRIES_MAX, 7),
        (module.WATERMARK_TRIES_MAX + 1, None),
    ):
        reads = [torn] * (tries - 1) + [whole]
        monkeypatch.setattr(os, "pread", lambda *_, reads=reads: reads.pop(0))
        assert read_watermark(tmp_path) == expected
