"""Verification: every flipped bit is found, and told apart by where it is."""

import dataclasses
import random
from pathlib import Path

import pytest

from penstock.errors import LogFormatTooNew
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import index_path
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.recover.verify import Verified, verify
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from tests.support.log_rows import LOG_ID, columns
from tests.support.recorded_files import RecordedFiles
from tests.unit.storage.sample import FOLDER, GROUPS, ROWS, base_of, flipped, path_of, sample

STATE, WRITER = sample(segments=3)
ENTRIES = [WRITER.index.entry(number) for number in range(GROUPS)]
HEAD = ENTRIES[0].position
FLIPS = 250


def findings(files: RecordedFiles) -> list[Damage]:
    return [each for each in verify(files, FOLDER) if isinstance(each, Damage)]


def test_a_sound_log_has_no_findings_and_is_not_changed() -> None:
    files = RecordedFiles(STATE)
    seen: list[int] = []
    found = list(verify(files, FOLDER, progress=seen.append))
    sizes = [len(STATE[path_of(number)]) for number in range(3)]
    assert found == [Verified(3, 3 * GROUPS, 3 * GROUPS * ROWS, sum(sizes) - 3 * (HEAD + 8))]
    assert sum(seen) == sum(sizes)
    assert files.operations == []


def regions() -> dict[str, tuple[Path, range, set[Fault]]]:
    row_group = ENTRIES[1]
    data = STATE[path_of(2)]
    starts = [row_group.position]
    for _ in range(2):  # IPC: a mark, the metadata's length, the metadata, the body
        start = starts[-1]
        length = int.from_bytes(data[start + 4 : start + 8], "little")
        following = data.index(b"\xff\xff\xff\xff", start + 8 + length)
        starts.append(following)
    topics, senders, record = starts
    metadata = record + 8 + int.from_bytes(data[record + 4 : record + 8], "little")
    end = row_group.position + row_group.size
    heads = {Fault.BAD_HEAD, Fault.MISSING_SEGMENT}
    return {
        "head": (path_of(2), range(HEAD), heads),
        "topics": (path_of(2), range(topics, senders), {Fault.DAMAGED}),
        "senders": (path_of(2), range(senders, record), {Fault.DAMAGED}),
        "metadata": (path_of(2), range(record, metadata), {Fault.DAMAGED}),
        "body": (path_of(2), range(metadata, end), {Fault.DAMAGED}),
        "last group": (path_of(1), range(ENTRIES[3].position, len(data) - 8), {Fault.DAMAGED}),
        "end marker": (path_of(1), range(len(data) - 8, len(data)), {Fault.BAD_END}),
        "last end marker": (path_of(2), range(len(data) - 8, len(data)), {Fault.BAD_END}),
        "index": (index_path(FOLDER, 0), range(len(STATE[index_path(FOLDER, 0)])), {Fault.STALE_INDEX}),
        "journal": (
            FOLDER / "topics.journal", range(len(STATE[FOLDER / "topics.journal"])), {Fault.BAD_JOURNAL}
        ),
        "state": (FOLDER / "log.json", range(len(STATE[FOLDER / "log.json"])), {Fault.BAD_STATE}),
    }  # fmt: skip


@pytest.mark.parametrize("region", regions())
def test_a_flipped_bit_anywhere_is_found_and_named(region: str) -> None:
    path, places, faults = regions()[region]
    chance = random.Random(region)
    tried = 0
    bits = [(position, bit) for position in places for bit in range(8)]
    for position, bit in sorted(chance.sample(bits, min(FLIPS, len(bits)))):
        files = flipped(STATE, path, position, bit)
        tried += 1
        try:
            found = findings(files)
        except LogFormatTooNew:
            assert region in {"head", "state"}
            continue
        assert found, f"{region}: bit {bit} of byte {position} is not found"
        assert {each.fault for each in found} <= faults, (position, bit, found)
        if Fault.DAMAGED in faults:
            (damage,) = found
            number = (damage.first_offset - damage.segment) // ROWS
            assert damage.position == ENTRIES[number].position
            assert damage.first_offset == damage.segment + number * ROWS
            assert damage.resumes_at == damage.first_offset + ROWS
    print(f"{region}: {tried} flips")  # noqa: T201 - how much was tried
    assert tried >= min(FLIPS, len(bits))


def test_a_torn_tail_is_told_from_damage() -> None:
    state, writer = sample(segments=2, sealed=False)
    last = writer.index.entry(GROUPS - 1)
    for cut in (1, 8, last.size // 2, last.size - 1):
        data = state[path_of(1)]
        files = RecordedFiles({**state, path_of(1): data[: len(data) - cut]})
        (found,) = findings(files)
        assert (found.fault, found.position) == (Fault.TORN, last.position)


def test_a_hole_and_a_missing_segment_are_told_apart() -> None:
    data = STATE[path_of(1)]
    first, last = ENTRIES[1].position, ENTRIES[2].position
    found = findings(RecordedFiles({**STATE, path_of(1): data[:first] + data[last:]}))
    assert [each.fault for each in found] == [Fault.HOLE, Fault.STALE_INDEX]
    assert (found[0].first_offset, found[0].resumes_at) == (
        base_of(1) + ROWS,
        base_of(1) + 2 * ROWS,
    )
    for missing in range(3):
        kept = {path: content for path, content in STATE.items() if path != path_of(missing)}
        (damage,) = findings(RecordedFiles(kept))
        assert damage.fault is Fault.MISSING_SEGMENT
        assert (damage.first_offset, damage.resumes_at) == (base_of(missing), base_of(missing + 1))
        assert (damage.position, damage.length) == (0, 0)


def test_a_declared_gap_is_named_as_one() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    crc = 0
    for base, previous_end in [(0, 0), (10, 1)]:
        writer = SegmentWriter(
            files, FOLDER, log_id=LOG_ID, partition=0,
            base_offset=base, previous_end=previous_end, previous_crc=crc,
        )  # fmt: skip
        writer.append(columns(base, [b"x"]), synced=previous_end)
        writer.seal()
        crc = writer.last_crc
    (found,) = findings(files)
    assert (found.fault, found.first_offset, found.resumes_at) == (Fault.GAP, 1, 10)


def test_a_group_whose_checksum_is_right_must_also_be_readable() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    writer = SegmentWriter(
        files, FOLDER, log_id=LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0
    )
    rows = columns(0, [b"x", b"y"])
    wrong = list(rows.buffers)
    wrong[4] = b"\xff\xff\xff\x7f" * 3  # the offsets of the values
    writer.append(dataclasses.replace(rows, buffers=wrong), synced=0)
    writer.seal()
    (found,) = findings(files)
    assert found.fault is Fault.DAMAGED
    assert "Arrow" in found.reason


def test_damage_reaches_up_to_the_end_that_the_next_segment_gives() -> None:
    last = ENTRIES[3]
    data = STATE[path_of(1)]
    zeros = data[: last.position] + bytes(last.size) + data[last.position + last.size :]
    state = {**STATE, path_of(1): zeros}
    del state[index_path(FOLDER, base_of(1))]
    found = findings(RecordedFiles(state))
    assert [each.fault for each in found] == [Fault.DAMAGED, Fault.STALE_INDEX]
