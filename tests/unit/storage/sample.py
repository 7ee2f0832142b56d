"""A small log in memory, to be cut and damaged."""

from pathlib import Path

from penstock.storage.arrow.format.file_names import partition_folder, segment_path
from penstock.storage.arrow.format.log_state import LogState, save_state
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.arrow.write.topic_journal import TopicJournal
from tests.support.log_rows import LOG_ID, START_US, columns, text_of
from tests.support.recorded_files import RecordedFiles, State

FOLDER = partition_folder(Path("/data"), 0)
GROUPS = 4
ROWS = 3
"""Messages of a row group; a segment has GROUPS * ROWS."""


def base_of(segment: int) -> int:
    return segment * GROUPS * ROWS


def path_of(segment: int) -> Path:
    return segment_path(FOLDER, base_of(segment))


def sample(
    *, segments: int, sealed: bool = True, synced: bool = True
) -> tuple[State, SegmentWriter]:
    """Full segments, one behind the other; the last may be left open. All offsets are used.

    `synced` tells whether each row group was on disk before the next was written.
    """
    files = RecordedFiles()
    recovered = recover(files, FOLDER, log_id=LOG_ID)
    journal = TopicJournal(files, FOLDER)
    end, crc = recovered.previous_end, recovered.previous_crc
    for number in range(segments):
        writer = SegmentWriter(
            files, FOLDER, log_id=LOG_ID, partition=0,
            base_offset=base_of(number), previous_end=end, previous_crc=crc,
        )  # fmt: skip
        for row_group in range(GROUPS):
            base = base_of(number) + row_group * ROWS
            name = f"segment/{number}/group/{row_group}"
            journal.add(name, bytes([number]) * 16)
            values = [text_of(base + row) for row in range(ROWS)]
            rows = columns(base, values, topics=[name], first_us=START_US + base * 1_000_000)
            writer.append(rows, synced=base if synced else base_of(number))
            writer.sync()
        end, crc = writer.end_offset, writer.last_crc
        if sealed or number < segments - 1:
            writer.seal()
    journal.write(sync=True)
    if sealed:
        state = LogState(LOG_ID, 0, next_offset=end, end=end)
        save_state(files, FOLDER, state)
    return files.state, writer


def flipped(state: State, path: Path, position: int, bit: int) -> RecordedFiles:
    """The files with one bit changed."""
    data = bytearray(state[path])
    data[position] ^= 1 << bit
    return RecordedFiles({**state, path: bytes(data)})
