"""A disk that fails: who is told what, what is kept, and that the broker goes back to work."""

import contextlib
import errno
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.limits import LOG_FREE_BYTES_MIN, LOG_RETRY_SECONDS
from penstock.ports import PartitionRange
from penstock.storage.files import Files
from penstock.storage.options import LogOptions, Retention
from tests.crash.faults import FaultyFiles, KeepingBroker
from tests.crash.loads import (
    LamamqPublisher,
    Load,
    Publisher,
    Rheos2Publisher,
    check_kept,
    marks,
    one_of_each,
    replayed,
    rows_of,
    segments,
    until,
)
from tests.support import lamamq_bytes as lama
from tests.support.rheos_bytes import CREATE, FAILED, PUBLISH, RHEOS2, Client

RETRY = "penstock.storage.appends.LOG_RETRY_SECONDS"
Break = Callable[[FaultyFiles], None]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RETRY, 0.05)


@pytest.fixture
def publishers() -> Iterator[list[Publisher]]:
    with crew(*one_of_each()) as made:
        yield made


@contextlib.contextmanager
def crew(*publishers: Publisher) -> Iterator[list[Publisher]]:
    """Publishers who leave when they are done."""
    yield list(publishers)
    for each in publishers:
        each.disconnect()


def connect(broker: KeepingBroker, publishers: list[Publisher]) -> None:
    for each in publishers:
        each.connect(broker.address)


def succeed(broker: KeepingBroker, publishers: list[Publisher], count: int = 5) -> None:
    """All publish, and all is kept."""
    for each in publishers:
        errors = each.errors
        outcome = each.outcome(count)
        assert outcome == ((count, 0) if each.acknowledged_protocol else (0, 0)), each.name
        assert each.errors == errors, each.name
    broker.until(lambda: broker.log.end == broker.log.next_offset)


def fail(publishers: list[Publisher], count: int = 5) -> None:
    """All publish, and all are told that nothing is kept."""
    for each in publishers:
        if each.acknowledged_protocol:
            assert each.outcome(count) == (0, count), each.name
        else:
            told = each.errors
            each.failed |= set(each.publish(count))
            each.read_until(lambda: each.errors > told)  # noqa: B023
            each.settle()


def back_to_work(broker: KeepingBroker) -> None:
    until(lambda: not broker.refuses, "a log that works again")


def check_after_restart(data: Path, publishers: list[Publisher], *, cut_off: bool = True) -> None:
    """What was acknowledged is there, and nothing of what failed; files and replay agree.

    Unless it could be `cut_off`: what failed may have been written, and nothing says that it was.
    """
    for each in publishers:
        each.disconnect()
    with KeepingBroker(data) as broker:
        assert not broker.log.damage(PartitionRange(0, 0, broker.log.end))
        connect(broker, publishers)
        succeed(broker, publishers)
    rows = rows_of(data)
    count = check_kept(rows, publishers, cut_off=cut_off)
    if cut_off:
        assert count == sum(each.next_number - len(each.failed) for each in publishers)
    with KeepingBroker(data) as broker:
        assert replayed(broker.address, count) == marks(rows)


def breaks(*faults: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> Break:
    """What breaks files in these ways, all at once."""

    def run(files: FaultyFiles) -> None:
        for operation, suffix, *more in faults:
            files.fail(operation, suffix, **(more[0] if more else {}))

    return run


FAULTS: dict[str, Break] = {
    "no room": breaks(("write", ".arrows", {"error": errno.ENOSPC})),
    "no room after some bytes": breaks(("write", ".arrows", {"error": errno.ENOSPC, "short": 100})),
    "EIO on write": breaks(("write", ".arrows")),
    "EIO on sync": breaks(("sync", ".arrows")),
    "and nothing can be cut off": breaks(("sync", ".arrows"), ("truncate", ".arrows")),
    "and nothing can be created": breaks(("sync", ".arrows"), ("create", ".arrows")),
    "and no folder synced": breaks(("sync", ".arrows"), ("sync folder", "")),
    "and nothing can be removed": breaks(("write", ".arrows"), ("remove", ".arrows")),
    "EIO on all": breaks(
        ("write", ""), ("sync", ""), ("create", ""), ("sync folder", ""), ("truncate", ""),
        ("rename", ""), ("remove", ""),
    ),
}  # fmt: skip
SEGMENT_FAULTS: dict[str, Break] = {
    **FAULTS,
    "EIO on create": breaks(("create", ".arrows")),
    "EIO on folder sync": breaks(("sync folder", "")),
    "no index can be created": breaks(("create", ".index.new")),
    "no index can be written": breaks(("write", ".index.new")),
    "no index can be renamed": breaks(("rename", ".index")),
}


def see_through(
    files: FaultyFiles, broken: Break, publishers: list[Publisher], data: Path, options: LogOptions
) -> None:
    """Publish with a disk that works, fails, and works again; twice, and after a restart."""
    with KeepingBroker(data, files, options) as broker:
        connect(broker, publishers)
        for _ in range(2):
            succeed(broker, publishers)
            tries = files.free_asked
            broken(files)
            fail(publishers)
            assert broker.refuses
            offset = broker.call(lambda: broker.log.next_offset)
            fail(publishers)
            assert broker.refuses
            assert broker.call(lambda: broker.log.next_offset) == offset, "refused at once"
            # Without an index, a new segment can be had all the same.
            until(lambda: files.free_asked > tries + 1 or not broker.refuses, "tries")  # noqa: B023
            files.mend()
            back_to_work(broker)
            succeed(broker, publishers)
    check_after_restart(data, publishers)


@pytest.mark.parametrize("name", FAULTS)
def test_who_is_not_kept_is_told_and_who_is_told_is_kept(
    name: str, publishers: list[Publisher], tmp_path: Path
) -> None:
    see_through(FaultyFiles(), FAULTS[name], publishers, tmp_path, LogOptions())


@pytest.mark.parametrize("name", SEGMENT_FAULTS)
def test_a_disk_that_fails_between_segments_costs_nothing_that_was_acknowledged(
    name: str, publishers: list[Publisher], tmp_path: Path
) -> None:
    one_commit_each = LogOptions(segment_bytes_max=1)
    see_through(FaultyFiles(), SEGMENT_FAULTS[name], publishers, tmp_path, one_commit_each)


def test_short_writes_are_no_failures(publishers: list[Publisher], tmp_path: Path) -> None:
    with KeepingBroker(tmp_path, FaultyFiles(write_bytes_max=100)) as broker:
        connect(broker, publishers)
        succeed(broker, publishers)
    check_after_restart(tmp_path, publishers)


def test_a_file_whose_sync_failed_is_never_used_again(
    publishers: list[Publisher], tmp_path: Path
) -> None:
    files = FaultyFiles()
    with KeepingBroker(tmp_path, files) as broker:
        connect(broker, publishers)
        succeed(broker, publishers)
        files.fail("sync", ".arrows", times=1)  # the next would say that all is well
        fail(publishers[:1])
        refused = broker.call(broker.server.broker.counters.messages_refused.total)
        assert refused == 5  # those of the commit that failed, and those after it
        back_to_work(broker)
        succeed(broker, publishers)
    (name,) = {name for _, name in files.failed}
    since = files.operations[files.operations.index(("truncate", name)) :]
    assert {operation for operation, each in since if each == name} == {"truncate"}
    check_after_restart(tmp_path, publishers)


@pytest.mark.parametrize("operation", ["write", "sync", "create", "sync folder"])
def test_a_topic_that_cannot_be_remembered_is_refused_and_can_be_made_later(
    operation: str, tmp_path: Path
) -> None:
    files = FaultyFiles()
    suffix = "" if operation == "sync folder" else "topics.journal"
    with (
        crew(Rheos2Publisher("old"), LamamqPublisher("old-too")) as old,
        crew(Rheos2Publisher("new"), LamamqPublisher("new-too", topic="new/topic")) as new,
        KeepingBroker(tmp_path, files) as broker,
    ):
        if operation not in {"create", "sync folder"}:
            connect(broker, old)
            succeed(broker, old)
        files.fail(operation, suffix)
        new[1].connect(broker.address)
        fail(new[1:])
        if operation not in {"create", "sync folder"}:
            fail(old)
        files.mend()
        back_to_work(broker)
        connect(broker, old)
        connect(broker, new)  # CREATE is granted
        succeed(broker, [*old, *new])
    with crew(*old, *new) as all_of_them:
        check_after_restart(tmp_path, all_of_them)  # and refused: it is there


def test_a_create_that_failed_is_not_a_duplicate(tmp_path: Path) -> None:
    files = FaultyFiles()
    with KeepingBroker(tmp_path, files) as broker, Client(broker, RHEOS2) as client:
        client.must(CREATE, b"first")
        files.fail("write", "topics.journal")
        assert client.ask(CREATE, b"second") == FAILED
        assert client.ask(CREATE, b"second") == FAILED
        files.mend()
        back_to_work(broker)
        client.must(CREATE, b"second")
        assert client.ask(CREATE, b"second") == FAILED
    with KeepingBroker(tmp_path) as broker, Client(broker, RHEOS2) as client:
        for name in (b"first", b"second"):
            assert client.ask(CREATE, name) == FAILED
            client.must(PUBLISH, name, b"x")


@pytest.mark.parametrize("name", SEGMENT_FAULTS)
def test_a_broker_stops_though_the_disk_fails(
    name: str, publishers: list[Publisher], tmp_path: Path
) -> None:
    """Also when the first failure is that the segment cannot be closed."""
    for seen in (True, False):
        files = FaultyFiles()
        with KeepingBroker(tmp_path, files) as broker:
            connect(broker, publishers)
            succeed(broker, publishers)
            SEGMENT_FAULTS[name](files)
            if seen and name in FAULTS:
                fail(publishers)
        for each in publishers:
            each.disconnect()
    check_after_restart(tmp_path, publishers, cut_off=name != "and nothing can be cut off")


def test_a_log_that_came_back_and_got_no_message_can_be_opened_again(
    publishers: list[Publisher], tmp_path: Path
) -> None:
    files = FaultyFiles()
    for _ in range(2):
        with KeepingBroker(tmp_path, files) as broker:
            connect(broker, publishers)
            files.fail("sync", ".arrows")
            fail(publishers)
            files.mend()
            back_to_work(broker)
        for each in publishers:
            each.disconnect()
    check_after_restart(tmp_path, publishers)


def test_subscribers_keep_getting_what_is_acknowledged(
    publishers: list[Publisher], tmp_path: Path
) -> None:
    files = FaultyFiles()
    with (
        KeepingBroker(tmp_path, files) as broker,
        lama.subscriber(broker, b"#") as live,  # type: ignore[arg-type]
    ):
        connect(broker, publishers)
        for _ in range(3):
            succeed(broker, publishers)
            files.fail("sync", ".arrows", times=1)
            fail(publishers[:1], 1)
            back_to_work(broker)
        succeed(broker, publishers)
        wanted = {
            f"<{each.name}:{number}>".encode()
            for each in publishers
            for number in range(each.next_number)
            if number not in each.failed
        }
        got: list[bytes] = []
        while wanted - set(got):
            got.append(live.forwarded().payload.partition(b">")[0] + b">")
        assert len(got) == len(set(got)), "none twice"
    check_after_restart(tmp_path, publishers)


def test_a_disk_that_comes_and_goes_under_load(tmp_path: Path) -> None:
    chance = random.Random(4)
    files = FaultyFiles()
    load = Load(one_of_each())
    with KeepingBroker(tmp_path, files, LogOptions(segment_bytes_max=200_000)) as broker:
        load.start(broker.address)
        for name in [*SEGMENT_FAULTS, *FAULTS]:
            failures = broker.log._appends.failures
            answers = load.answers
            until(lambda: load.answers > answers + 200, "answers")  # noqa: B023
            SEGMENT_FAULTS[name](files)
            until(lambda: broker.log._appends.failures > failures, f"a failure of {name}")  # noqa: B023
            if chance.random() < 0.5:
                until(lambda: broker.log._appends.failures > failures, "another")  # noqa: B023
            files.mend()
            back_to_work(broker)
        load.stop()
    assert sum(len(each.failed) for each in load.publishers) > 100
    with KeepingBroker(tmp_path) as broker:
        rows = rows_of(tmp_path)
        count = check_kept(rows, load.publishers)
        assert count >= load.answers
        assert replayed(broker.address, count) == marks(rows)


def test_it_is_tried_again_every_second(
    publishers: list[Publisher], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY, LOG_RETRY_SECONDS)
    files = FaultyFiles()
    with KeepingBroker(tmp_path, files) as broker:
        connect(broker, publishers)
        files.fail("sync", ".arrows", times=1)
        fail(publishers[:1])
        failed_at = time.monotonic()
        back_to_work(broker)
        assert 0.5 < time.monotonic() - failed_at < 5


def test_a_disk_without_room_is_left_alone_until_there_is_enough(
    publishers: list[Publisher], tmp_path: Path
) -> None:
    files = FaultyFiles()
    with KeepingBroker(tmp_path, files) as broker:
        connect(broker, publishers)
        succeed(broker, publishers)
        files.room = 10
        fail(publishers)
        files.room = LOG_FREE_BYTES_MIN - 1
        tries = files.free_asked
        until(lambda: files.free_asked > tries + 2, "tries")
        assert broker.refuses
        fail(publishers)
        files.room = 2 * LOG_FREE_BYTES_MIN
        back_to_work(broker)
        succeed(broker, publishers)
    files.mend()
    check_after_restart(tmp_path, publishers)


# --- Reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffixes", [[".arrows"], [".index"], [".arrows", ".index"]])
def test_what_cannot_be_read_is_left_out_and_counted(suffixes: list[str], tmp_path: Path) -> None:
    one_commit_each = LogOptions(segment_bytes_max=1)
    publisher = LamamqPublisher("lamamq")
    with KeepingBroker(tmp_path, FaultyFiles(), one_commit_each) as broker, crew(publisher):
        publisher.connect(broker.address)
        for _ in range(5):
            assert publisher.outcome(10) == (10, 0)
    files = FaultyFiles()
    with KeepingBroker(tmp_path, files) as broker:
        for suffix in suffixes:
            files.fail("read", f"{20:020}{suffix}")
        lost = 10 if ".arrows" in suffixes else 0
        expected = marks(row for row in rows_of(tmp_path) if not lost or row.offset // 10 != 2)
        assert replayed(broker.address, 50 - lost) == expected
        counters = broker.server.broker.counters
        assert sum(counters.messages_unreadable.values()) == lost
        assert sum(counters.messages_dropped.values()) == 0
        files.mend()
        assert len(replayed(broker.address, 50)) == 50


# --- A real disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607


def test_a_full_file_system_refuses_and_room_on_it_ends_that(small_disk: Path) -> None:
    data = small_disk / "data"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(18 << 20))
    publisher = Rheos2Publisher("rheos2", value_size=10_000)
    bystander = LamamqPublisher("lamamq", value_size=10)
    with crew(publisher, bystander) as both, KeepingBroker(data, Files()) as broker:
        connect(broker, both)
        succeed(broker, both)
        while not publisher.failed:
            publisher.outcome(20)
        assert len(publisher.acknowledged) > 100
        fail(both)
        ballast.unlink()
        back_to_work(broker)
        succeed(broker, both)
    with crew(*both):
        check_after_restart(data, both)


def test_retention_makes_room_on_a_full_file_system(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.options.LOG_RETENTION_SECONDS", 0.2)
    options = LogOptions(segment_bytes_max=1 << 20, retention=Retention(age_seconds_max=0.5))
    publisher = Rheos2Publisher("rheos2", value_size=10_000)
    with crew(publisher), KeepingBroker(small_disk, Files(), options) as broker:
        publisher.connect(broker.address)
        publisher.outcome(10)
        (small_disk / "ballast").write_bytes(bytes(4 << 20))
        while not publisher.failed:
            publisher.outcome(100)
        back_to_work(broker)
        assert broker.log.horizon > 0
        assert publisher.outcome(10) == (10, 0)
    check_kept(rows_of(small_disk), [publisher], from_start=False)


@pytest.mark.parametrize(
    "fault", [("rename", "log.json"), ("remove", ".arrows"), ("remove", ".index")]
)
def test_what_could_not_be_removed_is_removed_later(
    fault: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.options.LOG_RETENTION_SECONDS", 0.05)
    options = LogOptions(segment_bytes_max=1, retention=Retention(bytes_max=100_000))
    files = FaultyFiles()
    publisher = LamamqPublisher("lamamq", value_size=10_000)
    with crew(publisher), KeepingBroker(tmp_path, files, options) as broker:
        publisher.connect(broker.address)
        files.fail(*fault)
        for _ in range(30):
            assert publisher.outcome(1) == (1, 0)
        until(lambda: files.failed, "a failure")
        files.mend()
        until(lambda: len(segments(tmp_path)) < 15, "segments that are gone")
        assert broker.log.horizon > 15
    assert len(rows_of(tmp_path)) < 15
    with KeepingBroker(tmp_path, FaultyFiles(), options) as broker:
        rows = rows_of(tmp_path)
        check_kept(rows, [publisher], from_start=False)
        assert rows[-1].offset == 29
        assert replayed(broker.address, len(rows)) == marks(rows)
