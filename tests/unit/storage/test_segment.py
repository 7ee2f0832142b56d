"""The segment that is filled: a plain Arrow stream, and what fails is not in it."""

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.storage.arrow.format.file_names import partition_folder
from penstock.storage.arrow.format.segment import BadRowGroup, head, parse_row_group
from penstock.storage.arrow.recover.recovery import Recovered, recover
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.files import Files
from tests.support.log_rows import LOG_ID, columns, messages, text_of
from tests.support.recorded_files import FailingFiles


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return partition_folder(tmp_path, 0)


def begun(files: Files, folder: Path, recovered: Recovered) -> SegmentWriter:
    return SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0,
        base_offset=recovered.next_offset,
        previous_end=recovered.previous_end, previous_crc=recovered.previous_crc,
    )  # fmt: skip


def test_a_closed_segment_is_read_by_arrow_alone(folder: Path) -> None:
    files = Files()
    writer = begun(files, folder, recover(files, folder, log_id=LOG_ID))
    for base in (0, 2, 4):
        writer.append(
            columns(base, [text_of(base), text_of(base + 1)], topics=["a", "b"]), synced=base
        )
        writer.sync()
    writer.seal()
    table = pa.ipc.open_stream(writer.path.read_bytes()).read_all()
    assert table.column("offset").to_pylist() == list(range(6))
    assert table.column("value").to_pylist() == [text_of(offset) for offset in range(6)]
    assert table.column("topic").to_pylist() == ["a", "b"] * 3
    assert writer.size == writer.path.stat().st_size


def test_a_closed_segment_takes_no_more(folder: Path) -> None:
    files = Files()
    writer = begun(files, folder, recover(files, folder))
    writer.append(columns(0, [b"a"]), synced=0)
    writer.seal()
    with pytest.raises(ValueError, match="closed"):
        writer.append(columns(1, [b"b"]), synced=0)


@pytest.mark.parametrize("short", [0, 1, 700])
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO])
def test_a_group_that_could_not_be_written_is_gone_and_the_log_goes_on(
    folder: Path, failure: int, short: int
) -> None:
    recover(Files(), folder, log_id=LOG_ID)
    files = FailingFiles(write=2, failure=failure, short=short)  # the head, one row group
    writer = begun(files, folder, recover(files, folder))
    writer.append(columns(0, [b"a"]), synced=0)
    mark = writer.mark
    with pytest.raises(OSError, match=r"No space|Input/output"):
        writer.append(columns(1, [b"refused"]), synced=0)
    writer.abandon(mark)
    files.mend()
    following = SegmentWriter(
        files, folder, log_id=LOG_ID, partition=0,
        base_offset=2, previous_end=writer.end_offset, previous_crc=writer.last_crc,
    )  # fmt: skip
    following.append(columns(2, [b"b"]), synced=1)
    following.seal()
    recovered = recover(files, folder)
    assert messages(files, folder, recovered) == [(0, b"a"), (2, b"b")]
    assert (recovered.damage, recovered.cuts) == ([], [])


def test_a_segment_that_cannot_be_begun_leaves_nothing(folder: Path) -> None:
    recovered = recover(Files(), folder)
    for files in (FailingFiles(write=0, short=100), FailingFiles(sync=0, failure=errno.EIO)):
        with pytest.raises(OSError, match=r"No space|Input/output"):
            begun(files, folder, recovered)
        assert Files().names(folder) == ["log.json"]


def test_a_segment_whose_first_group_failed_leaves_nothing(folder: Path) -> None:
    files = FailingFiles(sync=1, failure=errno.EIO)
    writer = begun(files, folder, recover(Files(), folder))
    writer.append(columns(0, [b"refused"]), synced=0)
    with pytest.raises(OSError, match="Input/output"):
        writer.sync()
    writer.abandon(None)
    assert Files().names(folder) == ["log.json"]


def test_a_message_of_another_kind_is_no_row_group() -> None:
    schema = head(LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0)
    with pytest.raises(BadRowGroup, match="message of kind 1 at 0, expected 2"):
        parse_row_group(schema)
