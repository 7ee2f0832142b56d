"""Whatever a power cut leaves on disk, what was acknowledged is recovered: in order, none twice.

`PENSTOCK_POWER_CUTS=20 pytest -s tests/crash/test_power_cut.py` tries more than 100,000 states.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model import Durability
from penstock.storage.arrow.format.file_names import JOURNAL, STATE, segment_path
from penstock.storage.arrow.format.segment import head
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.write.topic_journal import TopicJournal, read_topics
from penstock.storage.arrow.write.watermark import WATERMARK, Watermark, read_watermark
from penstock.storage.files import Files
from tests.crash.life_stories import (
    LongLife,
    WholeLog,
    failing_life,
    old_life,
    second_life,
    short_life,
)
from tests.crash.lives import END, FOLDER, SMALL, Life, Row, Session, rows_of
from tests.crash.power_cuts import PowerCuts, Tried
from tests.support.log_rows import LOG_ID
from tests.support.power_cut import Disk, cuts
from tests.support.recorded_files import Killed, RecordedFiles, State

MORE = int(os.environ.get("PENSTOCK_POWER_CUTS", "1"))
"""How many times as much is tried as in every run of the tests."""


def tell(name: str, tried: Tried) -> None:
    print(f"{name}: {tried}")  # noqa: T201 - how much was tried


# --- Every state there is -------------------------------------------------------------------------


def test_whatever_is_on_disk_at_any_point_of_a_short_life_is_recovered() -> None:
    """Every operation, every sector that may be there or not, every size, every name."""
    cut = PowerCuts(short_life(), seed=0)
    tried = cut.run(states_max=1 << 12, again=0.04 * MORE, again_max=3 if MORE == 1 else 24)
    tell("a short life", tried)
    assert tried.complete >= 46, "all states there are"
    assert tried.recovered >= 1_900
    assert tried.within_recovery >= 1_500


@pytest.mark.parametrize(
    ("name", "story", "step"), [("short", short_life, 1), ("old", old_life, 2)]
)
def test_the_power_may_fail_after_the_process_was_killed(
    name: str, story: Callable[..., Life], step: int
) -> None:
    """A process that starts again sees more than is on disk, and must not take it for granted."""
    tried = Tried()
    for stop_at in range(0, len(story().files.operations) + 1, step if MORE == 1 else 1):
        life = story(stop_at=stop_at)
        second_life(life)
        cut = PowerCuts(life, seed=stop_at, goes_on=False)
        cut.run(start=stop_at, states_max=4 * MORE, again=0.003 * MORE, again_max=2)
        tried.add(cut.tried)
    tell(f"the {name} life, killed", tried)
    assert tried.recovered >= 900


@pytest.mark.parametrize("nothing_is_cut_off", [False, True])
def test_the_power_may_fail_after_any_operation_failed(
    nothing_is_cut_off: bool,  # noqa: FBT001
) -> None:
    """Nothing shows as damage either: who was not acknowledged was told so."""
    tried = Tried()
    for fail_at in range(len(failing_life(-1).files.operations)):
        life = failing_life(fail_at, nothing_is_cut_off=nothing_is_cut_off)
        assert life.files.failures
        if not nothing_is_cut_off:
            second_life(life)
        cut = PowerCuts(life, seed=fail_at, goes_on=False)
        cut.run(start=fail_at, states_max=4 * MORE, again=0.003 * MORE, again_max=2)
        tried.add(cut.tried)
    tell(f"a failure, nothing cut off: {nothing_is_cut_off}", tried)
    assert tried.recovered >= 500


def test_an_offset_that_was_seen_on_disk_is_remembered_though_recovery_is_killed() -> None:
    """Recovery that starts again may believe only what is on disk."""
    life = short_life(stop_at=17)  # two row groups that are not synced, behind one that is
    *_, row_group = life.row_groups()
    path = segment_path(FOLDER, 0)
    whole = life.files.state[path]
    torn = whole[: row_group.position - 512] + bytes(512) + whole[row_group.position :]
    state = {**life.files.state, path: torn}
    left = RecordedFiles(state)
    assert recover(left, FOLDER).next_offset == row_group.end == 5
    for stop_at in range(len(left.operations) + 1):
        files = RecordedFiles(state)
        files.stop_at = stop_at
        with contextlib.suppress(Killed):
            recover(files, FOLDER)
        files.stop_at = None
        recover(files, FOLDER)
        for _, disk in cuts(files, start=stop_at):
            _, states = disk.states(random.Random(0), 12)
            for each in states:
                recovered = recover(RecordedFiles(each), FOLDER)
                assert recovered.next_offset == 5
                assert [each.end_offset for each in recovered.segments] == [2]
                assert not recovered.damage


def test_topics_behind_a_sector_that_was_never_written_are_known() -> None:
    files = RecordedFiles()
    journal = TopicJournal(files, FOLDER)
    journal.add("a" * (512 - len(b'00000000 - ""\n')))
    journal.add("b")
    journal.write(sync=True)
    data = files.state[FOLDER / JOURNAL]
    assert data[511:512] == b"\n"
    lost = read_topics(RecordedFiles({FOLDER / JOURNAL: bytes(512) + data[512:]}), FOLDER)
    assert (lost.names, lost.bad_lines, lost.torn) == ([("b", b"")], 0, 0)
    flipped = data[:100] + b"\0" + data[101:]  # no sector is lost like this
    assert read_topics(RecordedFiles({FOLDER / JOURNAL: flipped}), FOLDER).bad_lines == 1


# --- Lives that chance decides --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mixed", "failing"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["fsync", "mixed", "fsync-failing", "mixed-failing"],
)
def test_what_was_acknowledged_outlives_a_power_cut_at_any_point(
    mixed: bool,  # noqa: FBT001
    failing: bool,  # noqa: FBT001
) -> None:
    """Only what asked for the disk counts; unless the disk fails too, nothing shows as damage."""
    tried = Tried()
    failures = 0
    for seed in range(2 * MORE):
        life = LongLife(seed, mixed=mixed, failing=failing).life
        failures += life.files.failures
        cut = PowerCuts(life, seed, lossless=not (mixed and failing))
        cut.run(states_max=4, again=0.02, again_max=2)
        tried.add(cut.tried)
    tell(f"mixed {mixed}, failing {failing}", tried)
    assert tried.recovered >= 200
    assert bool(failures) == failing


def test_a_whole_log_keeps_what_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.appends.LOG_RETRY_SECONDS", 0.01)
    monkeypatch.setattr("penstock.storage.options.LOG_RETENTION_SECONDS", 0.02)
    monkeypatch.setattr("penstock.storage.arrow.write.page_cache._STEP_BYTES", 6_000)
    tried = Tried()
    for seed in range(MORE):
        log = WholeLog(tmp_path / str(seed), seed)
        asyncio.run(log.run())
        assert log.refused
        assert log.life.promise(len(log.life.files.operations)).horizon > 0
        cut = PowerCuts(log.life, seed, lossless=False)
        cut.run(states_max=4, again=0.02, again_max=2)
        tried.add(cut.tried)
    tell("a whole log", tried)
    assert tried.recovered >= 200


# --- Who reads the folder -------------------------------------------------------------------------


def shown(follower: LogFollower) -> list[Row]:
    """All that a reader of the folder is shown, read by Arrow alone."""
    bounds = follower.refresh()
    rows: list[Row] = []
    for place in follower.catalog.places(bounds.horizon, bounds.end):
        with place.path.open("rb") as file:
            file.seek(place.entry.position)
            row_group = file.read(place.entry.size)
        first = head(LOG_ID, partition=0, base_offset=0, previous_end=0, previous_crc=0)
        for batch in pa.ipc.open_stream(first + row_group + END):
            columns = (batch.column(name).to_pylist() for name in Row._fields)
            rows += [Row(*each) for each in zip(*columns, strict=True)]
    return [row for row in rows if row.offset < bounds.end]


def put(state: State, data: Path) -> Path:
    """Put a state on a real disk."""
    folder = data / "log" / "0"
    folder.mkdir(parents=True)
    (data / "quarantine").mkdir()
    for path, content in state.items():
        (data / path.relative_to("/data")).write_bytes(content)
    return folder


class Quick(Files):
    """Real files on a machine whose power never fails."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def test_what_a_reader_of_the_folder_was_shown_is_recovered(tmp_path: Path) -> None:
    """Whatever the watermark says: nobody waits for it to be on disk, so it may say anything."""
    chance = random.Random(0)
    watermark_folder = tmp_path / "watermark"
    watermark_folder.mkdir()
    watermark = Watermark(watermark_folder, 0)
    life = Life(RecordedFiles())
    session = Session(life, segment_bytes_max=20_000, watermark=watermark)
    for _ in range(8):
        sizes = [[chance.choice((SMALL, 3_000))] * 2] * chance.randint(1, 2)
        assert session.commit(*sizes, durability=chance.choice(tuple(Durability)))
    end = session.next_offset
    assert read_watermark(watermark_folder) == end
    written = (watermark_folder / WATERMARK).read_bytes()
    watermark.close()
    seen = 0
    for length, disk in cuts(life.files):
        for number, state in enumerate(disk.some(chance, 2 + MORE)):
            data = tmp_path / f"{length}-{number}"
            if FOLDER / STATE not in state:
                continue
            folder = put(state, data)
            choice = chance.choice(("none", "torn", "any", "last"))
            if choice == "any":
                Watermark(folder, chance.randint(0, end)).close()
            elif choice != "none":
                (folder / WATERMARK).write_bytes(written if choice == "last" else written[:9])
            follower = LogFollower(data)
            before = shown(follower)
            recovered = recover(Quick(), folder, log_id=LOG_ID)
            on_disk = {path: path.read_bytes() for path in folder.iterdir()}
            rows = rows_of(RecordedFiles(on_disk), recovered, folder)
            assert before == rows[: len(before)], "shown, and not kept"
            assert shown(LogFollower(data)) == rows
            assert shown(follower) == rows
            seen += bool(before)
    assert seen > 30


# --- What would be found out ----------------------------------------------------------------------


class Forgetful(RecordedFiles):
    """Files of a process that leaves out the syncs that `forgets` names."""

    def __init__(
        self, forgets: Callable[[RecordedFiles, str], bool], state: State | None = None
    ) -> None:
        super().__init__(state)
        self.forgets = forgets

    def _sync(self, inode: int, path: Path) -> None:
        if not self.forgets(self, path.name):
            super()._sync(inode, path)

    def sync_folder(self, folder: Path) -> None:
        if not self.forgets(self, "folder"):
            super().sync_folder(folder)


FORGOTTEN: dict[str, Callable[[RecordedFiles, str], bool]] = {
    "what is acknowledged": lambda _, name: name.endswith(".arrows"),
    "the head of a segment": lambda files, name: (
        name.endswith(".arrows") and [each.kind for each in files.operations[-2:]] == ["create", "write"]
    ),
    "the name of a segment": lambda files, name: (
        name == "folder" and [each.kind for each in files.operations[-3:]] == ["create", "write", "sync"]
    ),
    "any name": lambda _, name: name == "folder",
    "topics": lambda _, name: name == "topics.journal",
    "log.json": lambda _, name: name == "log.json.new",
}  # fmt: skip


@pytest.mark.parametrize("forgotten", FORGOTTEN)
def test_a_sync_that_is_left_out_is_found_out(forgotten: str) -> None:
    forgets = FORGOTTEN[forgotten]
    with pytest.raises(AssertionError, match="the power was cut"):  # noqa: PT012
        for stop_at in (None, 14, 17):
            life = short_life(Forgetful(forgets), stop_at=stop_at)
            second_life(life)
            cut = PowerCuts(life, seed=0, goes_on=False, files=lambda s: Forgetful(forgets, s))
            cut.run(states_max=200, again=0.2, again_max=8)


def test_offsets_that_are_not_remembered_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.storage.arrow.recover.recovery._Recovery._raise_floor", lambda *_, **__: None
    )
    with pytest.raises(AssertionError, match="an offset that was seen on disk"):
        PowerCuts(short_life(), seed=0).run(states_max=1 << 12, again=0)


# --- The files themselves -------------------------------------------------------------------------


def test_nothing_is_lost_or_invented_by_a_disk_that_has_synced_all() -> None:
    life = short_life()
    disk = Disk(life.files)
    for operation in life.files.operations:
        disk.apply(operation)
    assert [disk.nothing] == list(disk.all(512)) == [life.files.state]


def test_every_sector_that_was_not_synced_may_be_there_or_not() -> None:
    files = RecordedFiles()
    handle = files.create(FOLDER / "a")
    files.sync_folder(FOLDER)
    files.append(handle, [b"1" * 512])
    files.sync(handle)
    files.append(handle, [b"2" * 512, b"3" * 100])
    *_, (_, disk) = cuts(files)
    contents = {state[FOLDER / "a"] for state in disk.all(512)}
    tails = [
        second + third for second in (b"2" * 512, bytes(512)) for third in (b"3" * 100, bytes(100))
    ]
    assert contents == {b"1" * 512, *(b"1" * 512 + tail for tail in tails)}
    files.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        files.sync(handle)
    files.sync(handle)
    *_, (_, disk) = cuts(files)
    assert {state[FOLDER / "a"] for state in disk.all(512)} == {b"1" * 512 + tail for tail in tails}


def exercise(files: Files, folder: Path) -> None:
    handle = files.create(folder / "a")
    files.append(handle, [b"1", b"2"])
    files.sync(handle)
    files.close(handle)
    files.sync_folder(folder)
    files.replace(folder / "b", b"3")
    files.replace(folder / "b", b"4")
    files.truncate(folder / "a", 1)
    files.rename(folder / "a", folder / "c")
    files.remove(folder / "b")
    files.remove(folder / "b")
    handle = files.open(folder / "c")
    files.append(handle, [b"5"])
    files.sync(handle)
    files.close(handle)
    assert files.read(folder / "c", 0, 10) == b"15"


def test_real_files_ask_of_the_system_what_recorded_files_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def note(kind: str, target: int | str | os.PathLike[str]) -> None:
        path = (
            Path(f"/proc/self/fd/{target}").readlink() if isinstance(target, int) else Path(target)
        )
        asked.append((f"{kind} folder" if kind == "sync" and path.is_dir() else kind, path.name))

    def watch(name: str, kind: str) -> None:
        call = getattr(os, name)

        def watched(target: int | str, *more: object, **options: object) -> object:
            result = call(target, *more, **options)
            note(kind, target)
            return result

        monkeypatch.setattr(os, name, watched)

    def watched_open(path: str, flags: int, *more: int) -> int:
        handle = opened(path, flags, *more)
        if flags & os.O_CREAT:
            note("create", path)
        return handle

    opened = os.open
    monkeypatch.setattr(os, "open", watched_open)
    for name, kind in {
        "writev": "write", "fdatasync": "sync", "fsync": "sync", "ftruncate": "truncate",
        "rename": "rename", "unlink": "remove", "mkdir": "make",
    }.items():  # fmt: skip
        watch(name, kind)
    folder = tmp_path / "x" / "y"
    Files().make_folder(folder)
    assert asked == [
        ("make", "x"),
        ("sync folder", tmp_path.name),
        ("make", "y"),
        ("sync folder", "x"),
    ]
    asked.clear()
    exercise(Files(), folder)
    recorded = RecordedFiles()
    exercise(recorded, folder)
    names: dict[int, str] = {}
    expected = []
    for each in recorded.operations:
        if each.kind in {"create", "rename"}:
            names[each.inode] = (each.new if each.kind == "rename" else each.path).name
        name = each.path.name or names[each.inode]
        expected.append((each.kind, name))
    assert asked == expected
