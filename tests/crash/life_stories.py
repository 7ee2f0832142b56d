"""What happens to logs on recorded files: short lives to be looked at closely, and long ones."""

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from penstock._kernels.batch import Sender
from penstock._kernels.topics import TopicTable
from penstock.core.answers import is_safe
from penstock.errors import LogUnavailable
from penstock.model import Durability, Kind
from penstock.ports import Receipt, Record
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.arrow.format.file_names import SEGMENT, STATE, partition_folder
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.arrow.recover.recovery import recover
from penstock.storage.arrow.write.watermark import read_watermark
from penstock.storage.options import DurabilityRules, LogOptions, Retention
from tests.crash.lives import SMALL, Life, Row, Session
from tests.support.log_rows import LOG_ID, START_US
from tests.support.recorded_files import Killed, RecordedFiles

SECONDS_MAX = 10.0


def short_life(files: RecordedFiles | None = None, *, stop_at: int | None = None) -> Life:
    """Three commits, a roll and a close; killed at an operation, if told so."""
    life = Life(files)
    life.files.stop_at = stop_at
    try:
        session = Session(life, segment_bytes_max=6_000)
        session.add_topic("first")
        session.commit([SMALL, SMALL])
        session.commit([SMALL], [SMALL, SMALL])
        session.add_topic("second")
        session.commit([SMALL])
        session.close()
    except Killed:
        pass
    life.files.stop_at = None
    return life


def failing_life(fail_at: int, *, nothing_is_cut_off: bool = False) -> Life:
    """The short life, with an operation that fails; whoever can, tries again."""
    life = Life()
    files = life.files
    files.fail_at = fail_at
    if nothing_is_cut_off:
        files.fail("truncate")
    with contextlib.suppress(OSError):
        session = Session(life, segment_bytes_max=6_000)
        session.add_topic("first")
        for groups in ([[SMALL, SMALL]], [[SMALL], [SMALL, SMALL]], [[SMALL]]):
            if not session.commit(*groups):
                assert session.revive() or session.revive()
                assert session.commit(*groups)
        session.close()
    return life


def second_life(life: Life, *, close: bool = True) -> None:
    """Start again on what a process has left that was killed: the machine goes on meanwhile."""
    session = Session(life, segment_bytes_max=6_000)
    session.add_topic("third")
    session.commit([SMALL, SMALL])
    if close:
        session.close()


class LongLife:
    """Some sessions of one log; a seed decides what happens in them."""

    def __init__(self, seed: int, *, mixed: bool = False, failing: bool = False) -> None:
        self.chance = random.Random(seed)
        self.life = Life()
        self.mixed = mixed
        self.failing = failing
        self._topics = itertools.count()
        for _ in range(3):
            self._session()

    def _session(self) -> None:
        chance = self.chance
        self.life.files.mend()
        session = Session(self.life, segment_bytes_max=chance.choice((1, 9_000, 30_000)))
        files = self.life.files
        if chance.random() < 0.3:  # killed at some operation that is still to come
            files.stop_at = len(files.operations) + chance.randint(1, 60)
        try:
            for _ in range(chance.randint(3, 6)):
                self._act(session)
            if chance.random() < 0.7:
                session.close()
        except Killed:
            pass
        files.stop_at = None

    def _act(self, session: Session) -> None:
        chance = self.chance
        if self.failing and chance.random() < 0.3:
            self._break()
        for _ in range(chance.choice((0, 0, 1, 3))):
            session.add_topic(f"t{next(self._topics)}".ljust(chance.choice((2, 2, 2_000)), "t"))
        durability = Durability.FSYNC
        if self.mixed:
            durability = chance.choice(list(Durability))
        groups = [
            [chance.choice((12, 12, 900, 5_000)) for _ in range(chance.randint(1, 3))]
            for _ in range(chance.choice((0, 1, 1, 2, 3)))
        ]
        if not session.commit(*groups, durability=durability):
            if chance.random() < 0.3:
                raise Killed
            while not session.revive():
                self.life.files.mend()
        if chance.random() < 0.3:
            session.forget(chance.randint(1, 2))

    def _break(self) -> None:
        kind, suffix = self.chance.choice(
            [
                ("write", SEGMENT), ("sync", SEGMENT), ("create", SEGMENT), ("sync folder", ""),
                ("write", "journal"), ("sync", "journal"), ("rename", ".index"), ("write", ".new"),
            ]
        )  # fmt: skip
        files = self.life.files
        files.fail(
            kind,
            suffix,
            after=self.chance.choice((0, 0, 1)),
            times=self.chance.choice((1, 1, 3)),
            short=self.chance.choice((0, 100, 2_100, 4_096)),
        )
        if self.mixed and self.chance.random() < 0.3:
            files.fail(self.chance.choice(("truncate", "remove")), SEGMENT)


def old_life(*, stop_at: int | None = None) -> Life:
    """Some segments of which the oldest are removed; killed at an operation, if told so."""
    life = Life()
    life.files.stop_at = stop_at
    try:
        session = Session(life, segment_bytes_max=1)
        for _ in range(4):
            session.commit([SMALL])
        session.forget(2)
        session.commit([SMALL])
    except Killed:
        pass
    life.files.stop_at = None
    return life


class WholeLog:
    """An ArrowLog with all its threads, on recorded files; the folder is for the watermark alone.

    It is closed and opened again, its disk fails now and then, old segments are removed.
    """

    def __init__(self, data: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.data = data
        folder = partition_folder(data, 0)
        folder.mkdir(parents=True, exist_ok=True)
        self.life = Life(folder=folder)
        recover(self.life.files, folder, log_id=LOG_ID)
        self._topics = itertools.count()
        self._waiting: list[tuple[Receipt, Row | None, str]] = []
        self.refused = 0

    async def run(self) -> None:
        for number in range(3):
            await self._session(number)
        self._note_horizons()

    async def _session(self, number: int) -> None:
        options = LogOptions(
            durability=DurabilityRules(
                Durability.FSYNC, [("os/#", Durability.OS), ("memory/#", Durability.MEMORY)]
            ),
            segment_bytes_max=15_000,
            retention=Retention(bytes_max=60_000),
        )
        files = self.life.files
        self.log = ArrowLog(self.data, options, files=files)
        self.table = TopicTable()
        self.log.attach(self.table, self._settle)
        for step in range(10):
            if number < 2 and step in {3, 7}:
                files.fail(self.chance.choice(("write", "sync")), SEGMENT, short=step * 300)
                while self.log.problem is None:
                    self._publish()
                    await self.log.flush()
                try:
                    self._publish()
                except LogUnavailable:
                    self.refused += 1
                await self._until(lambda: self.log.problem is None)
            for _ in range(self.chance.randint(1, 3)):
                self._publish()
            await self.log.flush()
        if number == 1:
            await self._until(lambda: self.log.horizon > 0)
        self.log.close()
        self._waiting.clear()

    def _publish(self) -> None:
        """Send some messages, and make a topic now and then."""
        if self.chance.random() < 0.3:
            name = f"t{next(self._topics)}"
            self._waiting.append((self.log.add_topic(name, bytes(16)), None, name))
        for _ in range(self.chance.randint(1, 4)):
            row = self.life.row(self.log.next_offset, self.chance.choice((12, 900, 3_000)))
            name = self.chance.choice(("a", "b", "os/c", "memory/d"))
            record = Record(
                LAMAMQ, Kind.PUBLISH, name, row.value, Sender(bytes(16), 1000), "somebody",
                START_US + row.offset,
            )  # fmt: skip
            self._waiting.append((self.log.append_record(record), row, ""))

    def _settle(self) -> None:
        """Tell clients what is safe and asked for the disk; the rest is not promised."""
        log = self.log
        if log.problem is None:
            safe = read_watermark(self.life.folder)
            assert safe is not None
            assert safe >= log.end
        waiting, self._waiting = self._waiting, []
        rows, topics = set(), set()
        for receipt, row, topic in waiting:
            if is_safe(receipt, log):
                if receipt.durability is Durability.FSYNC:
                    rows |= {row} if row else set()
                    topics |= {topic} if topic else set()
            elif receipt.commit > log.failed_commit:
                self._waiting.append((receipt, row, topic))
        self.life.acknowledge(frozenset(rows), frozenset(topics))

    async def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline, "it does not happen"
            await asyncio.sleep(0.002)

    def _note_horizons(self) -> None:
        """Take from log.json when it was decided what is not kept: nothing else changed then."""
        before: dict[str, int] = {}
        names = {}
        for number, each in enumerate(self.life.files.operations):
            if each.kind == "create":
                names[each.inode] = each.path.name
            elif each.kind == "write" and names.get(each.inode, "").startswith(STATE):
                document = json.loads(each.data)
                same = {"next_offset", "end"}
                if before and all(before[key] == document[key] for key in same):
                    self.life.horizons.append((number, document["horizon"]))
                before = document
