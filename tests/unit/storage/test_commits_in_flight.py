"""A commit that fails while others wait behind it: those fail too, and nothing of them is left."""

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock._kernels.topics import TopicTable
from penstock.core.answers import is_safe
from penstock.errors import LogUnavailable
from penstock.limits import BLOCK_BYTES_MAX
from penstock.ports import PartitionRange, Receipt
from penstock.ports.selection import Selection
from penstock.storage.arrow.format.file_names import SEGMENT
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.files import Files
from penstock.storage.options import LogOptions, Retention
from tests.support.written_log import message

SECONDS_MAX = 10.0
RETRY = "penstock.storage.appends.LOG_RETRY_SECONDS"


class HeldFiles(Files):
    """Files whose syncs wait for a test, and then fail if it says so."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.waiting = threading.Event()
        self.fails = False

    def sync(self, handle: int) -> None:
        self.waiting.set()
        assert self.free.wait(SECONDS_MAX)
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(handle)

    def hold(self) -> None:
        """Let the next sync wait."""
        self.waiting.clear()
        self.free.clear()


class Attached:
    """A log in a running event loop."""

    def __init__(self, data: Path, files: HeldFiles, **options: Any) -> None:
        self.files = files
        self.log = ArrowLog(data, LogOptions(waiting_bytes_max=1000, **options), files=files)
        self.answering: Callable[[], object] = lambda: None
        self._moved = asyncio.Event()
        self.log.attach(TopicTable(), self._settled)

    def _settled(self) -> None:
        self.answering()
        self._moved.set()

    def append(self, value: bytes) -> Receipt:
        return self.log.append_record(message("t", value))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self._moved.clear()
                await self._moved.wait()

    async def put(self, value: bytes) -> Receipt:
        """Append a message and wait until it is safe."""
        receipt = self.append(value)
        await self.until(lambda: is_safe(receipt, self.log))
        return receipt

    async def fail_with_another_behind(self) -> tuple[Receipt, Receipt]:
        """Let one commit fail while the next is collected; return a receipt of each."""
        self.files.hold()
        failing = self.append(b"fails")
        assert await asyncio.to_thread(self.files.waiting.wait, SECONDS_MAX)
        queued = self.append(b"x" * 2000)
        assert queued.commit > failing.commit
        assert self.log.crowded
        self.files.fails = True
        self.files.free.set()
        await self.until(lambda: self.log.failed_commit >= failing.commit)
        return failing, queued

    def values(self) -> list[bytes]:
        span = PartitionRange(0, *self.log.bounds()[0])
        return [
            row["value"] for each in self.log.scan(span, Selection()) for row in each.to_pylist()
        ]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_what_waits_behind_a_commit_that_fails_fails_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY, 0.01)

    async def use() -> None:
        used = Attached(tmp_path, HeldFiles())
        log = used.log
        settled = await used.put(b"kept")
        failing, queued = await used.fail_with_another_behind()
        assert is_safe(settled, log)
        assert settled.commit < failing.commit
        for lost in (failing, queued):
            assert not is_safe(lost, log)
            assert lost.commit <= log.failed_commit
        assert log.status().waiting_bytes == 0
        assert not log.crowded, "publishers that waited for room go on"
        await asyncio.wait_for(log.flush(), SECONDS_MAX)
        assert (log.status().failures, log.written_commit) == (1, settled.commit), (
            "no commit is left"
        )
        with pytest.raises(LogUnavailable):
            used.append(b"refused")
        used.files.fails = False
        await used.until(lambda: log.problem is None)
        later = await used.put(b"later")
        assert later.commit > log.failed_commit
        assert later.first_offset == queued.first_offset + 1, "offsets are not given twice"
        assert log.status().waiting_bytes == 0
        assert used.values() == [b"kept", b"later"]
        log.close()

    run(use())


def test_offsets_of_a_failed_commit_are_not_given_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY, 1000.0)

    async def use() -> None:
        used = Attached(tmp_path, HeldFiles())
        await used.put(b"kept")
        _, queued = await used.fail_with_another_behind()
        used.files.fails = False
        used.log.close()
        reopened = Attached(tmp_path, HeldFiles())
        assert reopened.log.next_offset == queued.first_offset + 1
        assert reopened.log.end == reopened.log.next_offset
        later = await reopened.put(b"later")
        assert later.first_offset == queued.first_offset + 1
        assert reopened.values() == [b"kept", b"later"]
        reopened.log.close()

    run(use())


def test_a_log_that_is_closed_while_a_commit_is_in_flight_keeps_what_waits_behind_it(
    tmp_path: Path,
) -> None:
    async def use() -> None:
        used = Attached(tmp_path, HeldFiles())
        used.files.hold()
        used.append(b"in flight")
        assert await asyncio.to_thread(used.files.waiting.wait, SECONDS_MAX)
        used.append(b"waits")
        closing = asyncio.create_task(asyncio.to_thread(used.log.close))
        used.files.free.set()
        await closing
        reopened = Attached(tmp_path, HeldFiles())
        assert reopened.values() == [b"in flight", b"waits"]
        assert reopened.log.next_offset == 2
        reopened.log.close()

    run(use())


def test_the_next_commit_is_written_while_clients_of_the_one_before_are_answered(
    tmp_path: Path,
) -> None:
    async def use() -> None:
        files = HeldFiles()
        used = Attached(tmp_path, files)
        await used.put(b"first")
        files.hold()
        used.append(b"in flight")
        assert await asyncio.to_thread(files.waiting.wait, SECONDS_MAX)
        last = used.append(b"behind it")
        writing: list[bool] = []
        used.answering = lambda: writing.append(files.waiting.wait(SECONDS_MAX))
        files.waiting.clear()
        files.free.set()
        await used.until(lambda: is_safe(last, used.log))
        assert writing[0], "the writer has the next commit before this callback returns"
        used.log.close()

    run(use())


def test_an_outcome_that_arrives_after_the_close_is_ignored(tmp_path: Path) -> None:
    async def use() -> None:
        loop = asyncio.get_running_loop()
        failed: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: failed.append(context))
        posted = threading.Event()
        post = loop.call_soon_threadsafe

        def note(*arguments: Any, **options: Any) -> asyncio.Handle:
            handle = post(*arguments, **options)
            posted.set()
            return handle

        loop.call_soon_threadsafe = note  # type: ignore[method-assign]
        used = Attached(tmp_path, HeldFiles())
        used.append(b"kept")
        await asyncio.sleep(0)  # the commit goes to the writer
        assert posted.wait(SECONDS_MAX), "its outcome comes while the loop does something else"
        used.log.close()
        await asyncio.sleep(0)
        assert failed == []
        reopened = Attached(tmp_path, HeldFiles())
        assert reopened.values() == [b"kept"]
        reopened.log.close()

    run(use())


def test_a_message_for_which_a_block_has_no_room_goes_into_the_next(tmp_path: Path) -> None:
    async def use() -> None:
        used = Attached(tmp_path, HeldFiles())
        values = [bytes([number]) * (BLOCK_BYTES_MAX * 3 // 4) for number in range(3)]
        for value in values:
            receipt = used.append(value)
        await used.until(lambda: is_safe(receipt, used.log))
        assert used.values() == values
        used.log.close()

    run(use())


class SegmentsFail(HeldFiles):
    """Files among which no segment can be created while `refuses` is set."""

    refuses = False
    refused = 0

    def create(self, path: Path) -> int:
        if self.refuses and path.suffix == SEGMENT:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().create(path)


def test_a_log_is_not_available_before_it_has_created_a_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY, 0.01)

    async def use() -> None:
        files = SegmentsFail()
        used = Attached(tmp_path, files)
        await used.put(b"kept")
        files.refuses = True
        await used.fail_with_another_behind()
        files.fails = False
        async with asyncio.timeout(SECONDS_MAX):
            while files.refused < 3:
                assert used.log.problem is not None
                await asyncio.sleep(0.01)
        files.refuses = False
        await used.until(lambda: used.log.problem is None)
        await used.put(b"later")
        assert used.values() == [b"kept", b"later"]
        used.log.close()

    run(use())


def test_the_time_of_each_sync_is_counted(tmp_path: Path) -> None:
    async def use() -> None:
        began = time.perf_counter()
        used = Attached(tmp_path, HeldFiles())
        for _ in range(3):
            await used.put(b"kept")
        times = used.log.status().sync_times
        used.log.close()
        assert times.count == 3
        assert 0 < times.seconds < time.perf_counter() - began

    run(use())


class SecondSyncFails(HeldFiles):
    """The head of a segment gets to the disk, and its first row group does not."""

    def __init__(self) -> None:
        super().__init__()
        self.segments: dict[int, int] = {}
        self.failed = False

    def create(self, path: Path) -> int:
        handle = super().create(path)
        if path.suffix == SEGMENT:
            self.segments[handle] = 0
        return handle

    def sync(self, handle: int) -> None:
        super().sync(handle)
        if handle in self.segments:
            self.segments[handle] += 1
            if self.segments[handle] == 2 and not self.failed:
                self.failed = True
                raise OSError(errno.EIO, "Input/output error")


def test_a_segment_whose_first_commit_failed_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RETRY, 0.01)

    async def use() -> None:
        used = Attached(tmp_path, SecondSyncFails())
        failed = used.append(b"fails")
        await used.until(lambda: used.log.failed_commit >= failed.commit)
        await used.until(lambda: used.log.problem is None)
        await used.put(b"kept")
        assert [each.base_offset for each in used.log._catalog.segments()] == [1]
        assert used.values() == [b"kept"]
        used.log.close()

    run(use())


@pytest.mark.parametrize("retention", [Retention(bytes_max=1), Retention()])
def test_a_closed_log_applies_no_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: Retention
) -> None:
    monkeypatch.setattr("penstock.storage.options.LOG_RETENTION_SECONDS", 0.01)

    async def use() -> None:
        failed: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        log = ArrowLog(tmp_path, LogOptions(retention=retention))
        log.attach(TopicTable(), lambda: None)
        log.close()
        await asyncio.sleep(0.05)
        assert failed == []

    run(use())


def test_retention_removes_segments_while_the_log_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage.options.LOG_RETENTION_SECONDS", 0.02)

    async def use() -> None:
        used = Attached(
            tmp_path, HeldFiles(), segment_bytes_max=1, retention=Retention(bytes_max=1)
        )
        for number in range(4):
            await used.put(b"%d" % number)
        async with asyncio.timeout(SECONDS_MAX):
            while used.log.horizon < 2:  # the last closed segment and the active one stay
                await asyncio.sleep(0.01)
        assert used.values() == [b"2", b"3"]
        used.log.close()

    run(use())
