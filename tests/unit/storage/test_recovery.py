"""Opening a log: a torn tail is cut, damage is fenced off, and nothing else is touched."""

import errno
import itertools
import time
from pathlib import Path

import pytest

from penstock.errors import LogFormatTooNew, LogInUse
from penstock.storage.arrow.format.damage import Fault, load_damage
from penstock.storage.arrow.format.file_names import (
    damage_path,
    index_path,
    partition_folder,
    segment_path,
)
from penstock.storage.arrow.format.log_state import LogState, load_state, save_state
from penstock.storage.arrow.read.index_cache import IndexCache
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.write.segment_writer import SegmentWriter
from penstock.storage.files import Files
from tests.support.log_rows import LOG_ID, columns, messages, text_of
from tests.support.recorded_files import FailingFiles, RecordedFiles
from tests.unit.storage.sample import FOLDER, GROUPS, ROWS, base_of, flipped, path_of, sample

END_OF_STREAM = bytes.fromhex("ffffffff00000000")
ALL = [(offset, text_of(offset)) for offset in range(base_of(2))]
BLOCKS = 4


def test_an_empty_folder_becomes_a_log_of_its_own() -> None:
    files = RecordedFiles()
    recovered = recover(files, FOLDER)
    assert (recovered.segments, recovered.damage, recovered.next_offset) == ([], [], 0)
    assert recovered.state.log_id < 1 << 48
    assert recover(files, FOLDER).state == recovered.state
    assert recover(RecordedFiles(), FOLDER).state.log_id != recovered.state.log_id


def test_a_log_that_was_closed_is_opened_without_a_change() -> None:
    state, writer = sample(segments=2)
    files = RecordedFiles(state)
    recovered = recover(files, FOLDER)
    assert files.operations == []
    assert messages(files, FOLDER, recovered) == ALL
    assert (recovered.next_offset, recovered.previous_end) == (base_of(2), base_of(2))
    assert recovered.previous_crc == writer.last_crc
    assert (recovered.damage, recovered.cuts) == ([], [])
    assert recovered.horizon == 0


@pytest.mark.parametrize("block", range(BLOCKS))
def test_a_cut_at_any_byte_of_the_last_two_groups_loses_only_what_is_cut(block: int) -> None:
    state, writer = sample(segments=1, sealed=False)
    path = path_of(0)
    entries = [writer.index.entry(number) for number in range(GROUPS)]
    first = entries[-2].position
    tried = 0
    for size in range(first + block, len(state[path]) + 1, BLOCKS):
        files = RecordedFiles({**state, path: state[path][:size]})
        recovered = recover(files, FOLDER)
        whole = sum(entry.position + entry.size <= size for entry in entries)
        end = whole * ROWS
        boundary = entries[whole - 1].position + entries[whole - 1].size
        assert files.state[path] == state[path][:boundary] + END_OF_STREAM
        if tried % 50 == 0 or abs(size - boundary) < 2:
            assert messages(files, FOLDER, recovered) == ALL[:end]
        assert [each.position for each in recovered.cuts] == ([boundary] if size > boundary else [])
        assert recovered.damage == []
        assert recovered.previous_end == end
        assert not [each for each in files.state if "quarantine" in each.parts]
        tried += 1
    print(f"{tried} cuts")  # noqa: T201 - how much was tried
    assert tried > 500


def test_a_flipped_bit_in_a_group_that_was_on_disk_is_damage_and_costs_only_that_group() -> None:
    state, writer = sample(segments=2, sealed=False)
    path = path_of(1)
    tried = 0
    for number in range(GROUPS - 1):
        entry = writer.index.entry(number)
        for position in range(entry.position, entry.position + entry.size, 7):
            files = flipped(state, path, position, position % 8)
            before = files.read(path, 0, 1 << 20)
            recovered = recover(files, FOLDER)
            assert [
                (each.fault, each.position, each.length, each.first_offset, each.resumes_at)
                for each in recovered.damage
            ] == [
                (
                    Fault.DAMAGED,
                    entry.position,
                    entry.size,
                    entry.base_offset,
                    entry.base_offset + ROWS,
                )
            ], position
            lost = range(entry.base_offset, entry.base_offset + ROWS)
            assert files.read(path, 0, len(before)) == before, "the bytes stay where they are"
            if tried % 10 == 0:
                assert messages_but(files, recovered, lost)
            assert load_damage(files, FOLDER, base_of(1)) == recovered.damage
            tried += 1
    print(f"{tried} flips")  # noqa: T201 - how much was tried
    assert tried > 500


def messages_but(files: RecordedFiles, recovered: object, lost: range) -> bool:
    found = messages(files, FOLDER, recovered)  # type: ignore[arg-type]
    return found == [each for each in ALL if each[0] not in lost]


def test_a_flipped_bit_in_a_group_nobody_saw_on_disk_is_cut_and_kept_in_quarantine() -> None:
    state, writer = sample(segments=2, sealed=False, synced=False)
    path = path_of(1)
    entry = writer.index.entry(1)
    tried = 0
    for position in range(entry.position, entry.position + entry.size, 37):
        files = flipped(state, path, position, 3)
        tail = files.read(path, entry.position, 1 << 20)
        recovered = recover(files, FOLDER)
        assert messages(files, FOLDER, recovered) == ALL[: entry.base_offset]
        (cut,) = recovered.cuts
        assert (cut.segment, cut.position, cut.length) == (base_of(1), entry.position, len(tail))
        assert cut.kept is not None
        assert files.state[cut.kept] == tail
        assert recovered.damage == []
        tried += 1
    assert tried > 50


def test_messages_between_damage_and_a_torn_tail_stay() -> None:
    state, writer = sample(segments=1, sealed=False)
    damaged, last = writer.index.entry(1), writer.index.entry(3)
    data = bytearray(state[path_of(0)])
    data[damaged.position + damaged.size - 8] ^= 1
    files = RecordedFiles({**state, path_of(0): bytes(data[: last.position + last.size // 2])})
    recovered = recover(files, FOLDER)
    assert [(each.first_offset, each.resumes_at) for each in recovered.damage] == [(3, 6)]
    assert [each.end_offset for each in recovered.segments] == [9]
    kept = [0, 1, 2, 6, 7, 8]
    assert messages(files, FOLDER, recovered) == [(each, text_of(each)) for each in kept]


@pytest.mark.parametrize("size", [8, 16, 4096])
def test_foreign_bytes_between_row_groups_cost_no_message(size: int) -> None:
    state, writer = sample(segments=1)
    data, position = state[path_of(0)], writer.index.entry(1).position
    changed = data[:position] + b"x" * size + data[position:]
    files = RecordedFiles({**state, path_of(0): changed})
    recovered = recover(files, FOLDER)
    assert [(each.position, each.length) for each in recovered.damage] == [(position, size)]
    assert messages(files, FOLDER, recovered) == ALL[: base_of(1)]


def test_recorded_damage_that_cannot_be_read_is_damage_without_a_range() -> None:
    state, _ = sample(segments=2)
    path = damage_path(FOLDER, base_of(1))
    recovered = recover(RecordedFiles({**state, path: b"no damage"}), FOLDER)
    (found,) = recovered.damage
    assert (found.fault, found.segment) == (Fault.DAMAGED, base_of(1))
    assert (found.position, found.length) == (0, 0)
    assert found.first_offset == found.resumes_at == base_of(1)
    assert "cannot be read" in found.reason


def test_offsets_that_were_seen_in_a_tail_that_is_cut_are_not_given_again() -> None:
    state, writer = sample(segments=2, sealed=False, synced=False)
    entry = writer.index.entry(1)
    files = flipped(state, path_of(1), entry.position + entry.size - 1, 0)
    recovered = recover(files, FOLDER)
    assert recovered.previous_end == entry.base_offset
    assert recovered.next_offset == base_of(2)
    assert recover(RecordedFiles(files.state), FOLDER).next_offset == base_of(2)


def test_groups_that_are_gone_from_the_middle_are_a_hole() -> None:
    state, writer = sample(segments=2, sealed=False)
    entry = writer.index.entry(1)
    data = state[path_of(1)]
    data = data[: entry.position] + data[entry.position + entry.size :]
    files = RecordedFiles({**state, path_of(1): data})
    recovered = recover(files, FOLDER)
    (damage,) = recovered.damage
    assert damage.fault is Fault.HOLE
    assert (damage.first_offset, damage.resumes_at) == (entry.base_offset, entry.base_offset + ROWS)
    assert messages_but(files, recovered, range(damage.first_offset, damage.resumes_at))


def test_a_group_that_stands_there_twice_is_damage_and_is_read_once() -> None:
    state, writer = sample(segments=2, sealed=False)
    entry = writer.index.entry(1)
    data = state[path_of(1)]
    end = entry.position + entry.size
    files = RecordedFiles({**state, path_of(1): data[:end] + data[entry.position :]})
    recovered = recover(files, FOLDER)
    assert [each.fault for each in recovered.damage] == [Fault.DAMAGED]
    assert messages(files, FOLDER, recovered) == ALL


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_segment_is_reported_with_its_offsets(missing: int) -> None:
    state, _ = sample(segments=3)
    files = RecordedFiles({path: data for path, data in state.items() if path != path_of(missing)})
    for _ in range(2):  # and it is not forgotten
        recovered = recover(files, FOLDER)
        (damage,) = recovered.damage
        assert damage.fault is Fault.MISSING_SEGMENT
        assert (damage.first_offset, damage.resumes_at) == (base_of(missing), base_of(missing + 1))
        assert recovered.next_offset == base_of(3)


def test_a_declared_gap_is_not_a_missing_segment() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    first = segment(files, 0, 0, 0)
    first.append(columns(0, [b"a", b"b"]), synced=0)
    mark = first.mark
    first.append(columns(2, [b"never", b"never"]), synced=0)
    first.abandon(mark)
    second = segment(files, 4, 2, first.last_crc)
    second.append(columns(4, [b"c"]), synced=2)
    second.seal()
    recovered = recover(files, FOLDER)
    assert recovered.damage == []
    assert messages(files, FOLDER, recovered) == [(0, b"a"), (1, b"b"), (4, b"c")]


def test_what_was_refused_does_not_come_back_when_it_could_not_be_cut_off() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    first = segment(files, 0, 0, 0)
    first.append(columns(0, [b"a", b"b"]), synced=0)
    crc = first.last_crc
    first.append(columns(2, [b"refused"]), synced=0)
    second = segment(files, 3, 2, crc)
    second.append(columns(3, [b"c"]), synced=2)
    second.seal()
    recovered = recover(files, FOLDER)
    assert messages(files, FOLDER, recovered) == [(0, b"a"), (1, b"b"), (3, b"c")]
    assert recovered.damage == []
    assert [each.first_offset for each in recovered.cuts] == [2]


def test_damage_before_refused_messages_is_reported_and_they_are_cut_off() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    first = segment(files, 0, 0, 0)
    first.append(columns(0, [b"a", b"b"]), synced=0)
    first.append(columns(2, [b"damaged"]), synced=2)
    first.append(columns(3, [b"c"]), synced=3)
    crc = first.last_crc
    first.append(columns(4, [b"refused"]), synced=4)
    second = segment(files, 5, 4, crc)
    second.append(columns(5, [b"d"]), synced=4)
    second.seal()
    entry = first.index.entry(1)
    files = flipped(files.state, path_of(0), entry.position + entry.size - 8, 0)
    recovered = recover(files, FOLDER)
    assert [(each.first_offset, each.resumes_at) for each in recovered.damage] == [(2, 3)]
    assert [each.first_offset for each in recovered.cuts] == [4]
    assert messages(files, FOLDER, recovered) == [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d")]


def test_a_hole_before_refused_messages_ends_where_the_log_ended() -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    first = segment(files, 0, 0, 0)
    first.append(columns(0, [b"a", b"b"]), synced=0)
    first.append(columns(5, [b"refused"]), synced=0)
    second = segment(files, 6, 3, 0)
    second.append(columns(6, [b"c"]), synced=3)
    second.seal()
    recovered = recover(files, FOLDER)
    assert [(each.first_offset, each.resumes_at) for each in recovered.damage] == [(2, 3)]
    assert [each.first_offset for each in recovered.cuts] == [5]
    assert messages(files, FOLDER, recovered) == [(0, b"a"), (1, b"b"), (6, b"c")]


def segment(files: Files, base: int, previous_end: int, previous_crc: int) -> SegmentWriter:
    return SegmentWriter(
        files, FOLDER, log_id=LOG_ID, partition=0,
        base_offset=base, previous_end=previous_end, previous_crc=previous_crc,
    )  # fmt: skip


@pytest.mark.parametrize("size", [0, 1, 8, 500, 4096])
def test_a_segment_without_a_group_is_removed_and_its_offsets_stay_unused(size: int) -> None:
    state, _ = sample(segments=1)
    path = segment_path(FOLDER, 100)
    files = RecordedFiles({**state, path: bytes(size)})
    recovered = recover(files, FOLDER)
    assert path not in files.state
    assert [each.base_offset for each in recovered.segments] == [0]
    assert (recovered.previous_end, recovered.next_offset) == (base_of(1), 100)
    assert recover(RecordedFiles(files.state), FOLDER).next_offset == 100


def test_a_damaged_head_costs_no_message_and_is_reported() -> None:
    state, writer = sample(segments=2, sealed=False)
    tried = 0
    for position in range(0, writer.index.entry(0).position, 11):
        files = flipped(state, path_of(1), position, 5)
        try:
            recovered = recover(files, FOLDER)
        except LogFormatTooNew:
            continue
        assert recovered.damage, position
        assert {each.fault for each in recovered.damage} <= {
            Fault.BAD_HEAD, Fault.HOLE, Fault.MISSING_SEGMENT
        }  # fmt: skip
        assert [each.end_offset for each in recovered.segments][-1] == base_of(2)
        tried += 1
    assert tried > 100


@pytest.mark.parametrize("change", ["gone", "cut", "flipped", "another's"])
def test_an_index_that_is_not_right_is_made_again(change: str) -> None:
    state, _ = sample(segments=2)
    path = index_path(FOLDER, 0)
    right = state[path]
    other = {
        "gone": None,
        "cut": right[:100],
        "flipped": right[:-20] + bytes([right[-20] ^ 1]) + right[-19:],
        "another's": state[index_path(FOLDER, base_of(1))],
    }[change]
    kept = {each: data for each, data in state.items() if each != path}
    files = RecordedFiles(kept if other is None else {**kept, path: other})
    recovered = recover(files, FOLDER)
    assert recovered.damage == []
    cache = IndexCache(files, FOLDER)
    index = cache.get(0, end_offset=base_of(1))
    assert [index.entry(number).base_offset for number in range(len(index))] == [0, 3, 6, 9]
    assert files.state[path] == right


def test_damage_stays_known_when_recovery_is_cut_short_behind_the_cut() -> None:
    # The first row group of the tail says that the damaged one was on disk, and goes with the tail.
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    writer = segment(files, 0, 0, 0)
    for base, synced in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 2)]:
        writer.append(columns(base, [text_of(base)]), synced=synced)
    entries = [writer.index.entry(number) for number in range(5)]
    path = segment_path(FOLDER, 0)
    data = bytearray(files.state[path])
    data[entries[1].position + 900] ^= 1
    data[entries[3].position + 900] ^= 1
    damaged = {**files.state, path: bytes(data)}
    whole = RecordedFiles(damaged)
    recovered = recover(whole, FOLDER)
    assert [each.first_offset for each in recovered.damage] == [1]
    assert [offset for offset, _ in messages(whole, FOLDER, recovered)] == [0, 2]
    for length in range(len(whole.operations)):
        half = RecordedFiles(damaged)
        with pytest.raises(StopHere):
            recover(stopping(half, length), FOLDER)
        half = RecordedFiles(half.state)
        again = recover(half, FOLDER)
        assert [each.first_offset for each in again.damage] == [1], length
        assert [offset for offset, _ in messages(half, FOLDER, again)] == [0, 2]
        assert again.next_offset == recovered.next_offset


class StopHere(Exception):
    """The process is killed."""


def stopping(files: RecordedFiles, length: int) -> RecordedFiles:
    """The same files, with a process that is killed instead of doing its `length`-th change."""

    class Operations(list):  # type: ignore[type-arg]
        def append(self, operation: object) -> None:
            if len(self) >= length:
                raise StopHere
            super().append(operation)

    files.operations = Operations()
    return files


def test_data_of_a_later_format_is_refused_and_left_alone() -> None:
    state, _ = sample(segments=1)
    path = path_of(0)
    # A FlatBuffers string: its length, its bytes, a zero.
    changed = state[path].replace(b"\x01\0\0\x002\0", b"\x01\0\0\x003\0", 1)
    assert changed != state[path]
    files = RecordedFiles({**state, path: changed})
    with pytest.raises(LogFormatTooNew):
        recover(files, FOLDER)
    assert files.operations == []


def test_a_log_is_opened_by_one_process(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, 0)
    files = Files()
    files.make_folder(folder)
    held = files.lock(folder)
    with pytest.raises(LogInUse):
        Files().lock(folder)
    files.close(held)
    files.close(Files().lock(folder))


def test_log_json_is_made_again_from_the_segments() -> None:
    state, _ = sample(segments=2)
    path = FOLDER / "log.json"
    for data in [None, b"", b"{", state[path].replace(b'"end":24', b'"end":25')]:
        kept = {each: content for each, content in state.items() if each != path}
        files = RecordedFiles(kept if data is None else {**kept, path: data})
        recovered = recover(files, FOLDER)
        assert [each.fault for each in recovered.damage] == [Fault.BAD_STATE]
        assert (recovered.state.log_id, recovered.next_offset) == (LOG_ID, base_of(2))
        again = load_state(files, FOLDER)
        assert again == recovered.state


def test_opening_does_not_read_what_was_closed(tmp_path: Path) -> None:
    # 40 segments of 256 MiB: all but the first and last bytes are a hole in the file.
    folder = partition_folder(tmp_path, 0)
    files = Files()
    recover(files, folder, log_id=LOG_ID)
    end = crc = 0
    for _ in range(40):
        writer = SegmentWriter(
            files, folder, log_id=LOG_ID, partition=0,
            base_offset=end, previous_end=end, previous_crc=crc,
        )  # fmt: skip
        writer.append(columns(end, [b"x"]), synced=end)
        with writer.path.open("r+b") as file:
            file.truncate(256 << 20)
        writer.size = 256 << 20
        writer.seal()
        end, crc = writer.end_offset, writer.last_crc
    start = time.perf_counter()
    recovered = recover(files, folder)
    seconds = time.perf_counter() - start
    assert (len(recovered.segments), recovered.damage) == (40, [])
    assert sum(each.size for each in recovered.segments) > 10 << 30
    print(f"10 GiB in {seconds:.3f} s")  # noqa: T201 - how much was tried
    assert seconds < 2


def test_segments_below_the_horizon_are_removed_when_they_come_back() -> None:
    state, _ = sample(segments=3)
    files = RecordedFiles(state)
    recovered = recover(files, FOLDER)
    save_state(files, FOLDER, LogState(LOG_ID, 0, end=base_of(3), horizon=base_of(2)))
    recovered = recover(files, FOLDER)
    assert [each.base_offset for each in recovered.segments] == [base_of(2)]
    assert recovered.damage == []
    assert recovered.horizon == base_of(2)
    names = {path.name for path in files.state if path.parent == FOLDER}
    assert not [name for name in names if name.startswith(f"{0:020}")]


def test_what_belongs_to_no_segment_is_swept() -> None:
    state, _ = sample(segments=1)
    strays = [index_path(FOLDER, 500), FOLDER / "log.json.new", FOLDER / f"{500:020}.damage.json"]
    files = RecordedFiles({**state, **dict.fromkeys(strays, b"x"), FOLDER / "mine.txt": b"x"})
    recover(files, FOLDER)
    assert set(files.state) == {*state, FOLDER / "mine.txt"}


def test_a_payload_that_looks_like_a_group_is_not_taken_for_one() -> None:
    state, writer = sample(segments=1, sealed=False)
    entry = writer.index.entry(3)
    forged = state[path_of(0)][entry.position : entry.position + entry.size]
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    real = segment(files, 0, 0, 0)
    real.append(columns(0, [forged * 2, b"a"]), synced=0)
    real.append(columns(2, [b"b"]), synced=2)
    data = bytearray(files.state[path_of(0)])
    data[real.index.entry(1).position - 1] ^= 1
    recovered = recover(damaged := RecordedFiles({**files.state, path_of(0): bytes(data)}), FOLDER)
    assert [(each.first_offset, each.resumes_at) for each in recovered.damage] == [(0, 2)]
    assert messages(damaged, FOLDER, recovered) == [(2, b"b")]


def test_every_offset_is_found_or_known_to_be_lost() -> None:
    state, writer = sample(segments=1, sealed=False)
    for first, second in itertools.combinations(range(GROUPS), 2):
        data = bytearray(state[path_of(0)])
        for number in (first, second):
            data[writer.index.entry(number).position + 1000] ^= 16
        files = RecordedFiles({**state, path_of(0): bytes(data)})
        recovered = recover(files, FOLDER)
        found = {offset for offset, _ in messages(files, FOLDER, recovered)}
        lost = {
            offset
            for each in recovered.damage
            for offset in range(each.first_offset, each.resumes_at)
        }
        cut = {offset for each in recovered.cuts for offset in range(each.first_offset, base_of(1))}
        assert found | lost | cut == set(range(base_of(1)))
        assert not found & lost


def test_a_full_disk_does_not_keep_a_log_from_being_opened(tmp_path: Path) -> None:
    folder = partition_folder(tmp_path, 0)
    recover(Files(), folder, log_id=LOG_ID)
    writer = SegmentWriter(
        Files(), folder, log_id=LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0
    )
    for base in range(3):
        writer.append(columns(base, [text_of(base)]), synced=base)
    with writer.path.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x40")
    full = FailingFiles(write=0)
    recovered = recover(full, folder)
    assert full.failures > 0
    assert [(each.base_offset, each.end_offset) for each in recovered.segments] == [(0, 3)]
    assert len(IndexCache(full, folder).get(0, end_offset=3)) == 3
    full.mend()
    recovered = recover(full, folder)
    assert messages(full, folder, recovered) == ALL[:3]


class PartlyUnreadable(RecordedFiles):
    """A disk that does not give some bytes."""

    lost = range(0)

    def read(self, path: Path, position: int, size: int) -> bytes:
        if path == path_of(0) and max(position, self.lost.start) < min(
            position + size, self.lost.stop
        ):
            raise OSError(errno.EIO, "Input/output error")
        return super().read(path, position, size)


def test_what_the_disk_does_not_give_is_damage_and_the_rest_is_read() -> None:
    files = PartlyUnreadable()
    recover(files, FOLDER, log_id=LOG_ID)
    writer = segment(files, 0, 0, 0)
    for base in range(4):
        writer.append(columns(base, [text_of(base, 20_000)]), synced=base)
    middle = writer.index.entry(1).position + 5_000
    files.lost = range(middle, middle + 1)
    recovered = recover(files, FOLDER)
    (damage,) = recovered.damage
    assert (damage.fault, damage.first_offset, damage.resumes_at) == (Fault.DAMAGED, 1, 2)
    assert "the disk does not give" in damage.reason
    assert recovered.next_offset == 4


@pytest.mark.parametrize(("synced", "lost"), [(1, []), (2, [1])])
def test_a_group_is_damage_only_if_a_later_one_says_that_it_was_on_disk(
    synced: int, lost: list[int]
) -> None:
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    writer = segment(files, 0, 0, 0)
    for base, claim in [(0, 0), (1, 0), (2, synced)]:
        writer.append(columns(base, [text_of(base)]), synced=claim)
    files = flipped(files.state, path_of(0), writer.index.entry(1).position + 900, 0)
    recovered = recover(files, FOLDER)
    assert [each.first_offset for each in recovered.damage] == lost
    assert [each.first_offset for each in recovered.cuts] == ([] if lost else [1])


def test_a_segment_that_has_only_its_head_goes_without_a_trace() -> None:
    state, writer = sample(segments=1)
    files = RecordedFiles(state)
    segment(files, 100, base_of(1), writer.last_crc)
    left = {damage_path(FOLDER, 100): b"[]", index_path(FOLDER, 100): b""}
    files = RecordedFiles({**files.state, **left})
    recovered = recover(files, FOLDER)
    assert not {segment_path(FOLDER, 100), *left} & set(files.state)
    assert (recovered.damage, recovered.cuts) == ([], [])
    assert not [each for each in files.state if "quarantine" in each.parts]


@pytest.mark.parametrize("data", [b"x", b"no head at all"])
def test_bytes_that_are_no_head_are_kept(data: bytes) -> None:
    state, _ = sample(segments=1)
    path = segment_path(FOLDER, 100)
    files = RecordedFiles({**state, path: data})
    (cut,) = recover(files, FOLDER).cuts
    assert (cut.segment, cut.position, cut.length) == (100, 0, len(data))
    assert cut.kept is not None
    assert files.state[cut.kept] == data


def test_a_torn_tail_does_not_reach_into_the_group_before_it() -> None:
    # The last byte of the group and the bytes behind it look like an end marker.
    files = RecordedFiles()
    recover(files, FOLDER, log_id=LOG_ID)
    writer = segment(files, 0, 0, 0)
    rows = columns(0, [text_of(base) for base in range(8)])
    rows.buffers[-1] = b"\xff" * 8
    writer.append(rows, synced=0)
    whole = files.state[path_of(0)]
    assert whole.endswith(END_OF_STREAM[:1])
    files = RecordedFiles({**files.state, path_of(0): whole + END_OF_STREAM[1:]})
    (cut,) = recover(files, FOLDER).cuts
    assert (cut.position, cut.length) == (len(whole), 7)
    assert files.state[path_of(0)] == whole + END_OF_STREAM
