"""Plays power cuts through recovery and holds what is found against what was promised."""

import dataclasses
import hashlib
import random
from collections.abc import Callable
from typing import NamedTuple

from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.file_names import SEGMENT
from penstock.storage.arrow.recover.recovery import Recovered, recover
from penstock.storage.arrow.recover.verify import Verified, verify
from penstock.storage.arrow.write.topic_journal import TopicJournal
from tests.crash.lives import SMALL, Life, Promise, Row, Session, rows_of
from tests.support.log_rows import LOG_ID
from tests.support.power_cut import Disk, cuts
from tests.support.recorded_files import RecordedFiles, State


class Found(NamedTuple):
    """What recovery makes of a state, and what it did to get there."""

    files: RecordedFiles
    recovered: Recovered
    rows: frozenset[Row]
    topics: frozenset[str]


@dataclasses.dataclass(slots=True)
class Tried:
    """How much was tried.

    `states` counts each state at each point, `recovered` those that are different, `complete` the
    points at which there were no others.
    """

    points: int = 0
    complete: int = 0
    states: int = 0
    recovered: int = 0
    within_recovery: int = 0
    went_on: int = 0

    def add(self, other: "Tried") -> None:
        """Count what another has tried too."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return (
            f"{self.states} states at {self.points} points ({self.complete} with all there are), "
            f"{self.within_recovery} of them within recovery; {self.recovered} different, "
            f"{self.went_on} went on"
        )


class PowerCuts:
    """Tries states of one life; what was seen before is not recovered again.

    `lossless` tells that no state may show damage, `goes_on` that each recovered log is to be used
    again, and `files` makes those that it is recovered on.
    """

    def __init__(
        self,
        life: Life,
        seed: int,
        *,
        lossless: bool = True,
        goes_on: bool = True,
        files: Callable[[State], RecordedFiles] = RecordedFiles,
    ) -> None:
        self.life = life
        self.goes_on = goes_on
        self.files = files
        self.chance = random.Random(seed)
        self.lossless = lossless
        self.tried = Tried()
        self._found: dict[bytes, tuple[Recovered, frozenset[Row], frozenset[str]]] = {}
        self._left: set[bytes] = set()

    def run(
        self, *, start: int = 0, states_max: int, again: float = 1.0, again_max: int = 1 << 12
    ) -> Tried:
        """Cut the power behind each operation from `start` on.

        At most `states_max` states are tried at each. Recovery is cut short too, with a chance of
        `again` for each state, behind each of its operations, with up to `again_max` states.
        """
        for length, disk in cuts(self.life.files, start=start):
            promise = self.life.promise(length)
            for state in self._states(disk, states_max):
                try:
                    found = self.check(state, promise)
                    if found is not None and self.chance.random() < again:
                        self._cut_recovery(found, promise, again_max)
                except AssertionError as error:
                    done = [each.kind for each in self.life.files.operations[:length][-8:]]
                    error.add_note(f"the power was cut behind {length} operations: {done}")
                    raise
        return self.tried

    def _states(self, disk: Disk, states_max: int) -> list[State]:
        complete, states = disk.states(self.chance, states_max)
        self.tried.points += 1
        self.tried.complete += complete
        return list(states)

    def _cut_recovery(self, found: Found, promise: Promise, states_max: int) -> None:
        """Let the power fail again while the log recovers: after each of its operations."""
        for _, disk in cuts(found.files):
            for state in self._states(disk, states_max):
                self.tried.within_recovery += 1
                self.check(state, promise)
                recovered, rows, _ = self._found[_digest(state)]
                assert recovered.next_offset >= found.recovered.next_offset
                assert rows == found.rows, "recovery that was cut short finds the same"

    def check(self, state: State, promise: Promise) -> Found | None:
        """Recover a state and see that it keeps a promise; None if it was recovered before."""
        self.tried.states += 1
        digest = _digest(state)
        known = self._found.get(digest)
        found = None
        if known is None:
            found = self._recover(state)
            known = self._found[digest] = found.recovered, found.rows, found.topics
            self.tried.recovered += 1
        recovered, rows, topics = known
        lost = promise.rows - rows
        assert not lost, f"lost: {sorted(lost)[:3]}"
        assert promise.topics <= topics, f"lost: {sorted(promise.topics - topics)[:3]}"
        last = max((row.offset for row in promise.rows), default=-1)
        assert recovered.next_offset > last, "an offset that was acknowledged is given again"
        return found

    # --- One state, whatever was promised

    def _recover(self, state: State) -> Found:
        folder = self.life.folder
        files = self.files(state)
        recovered = recover(files, folder, log_id=LOG_ID)
        topics = TopicJournal(files, folder).load()
        if self.lossless:
            assert not recovered.damage, recovered.damage[0]
            assert not topics.bad_lines
        rows = rows_of(files, recovered, folder, damaged=not self.lossless)
        offsets = [row.offset for row in rows]
        assert offsets == sorted(set(offsets)), "in order, none twice"
        assert self.life.sent.issuperset(rows), "a message that nobody sent"
        assert not offsets or recovered.next_offset > offsets[-1]
        assert recovered.next_offset >= self._given(state), "an offset that was seen on disk"
        found = Found(
            files, recovered, frozenset(rows), frozenset(name for name, _ in topics.names)
        )
        left = files.state
        digest = _digest({path: data for path, data in left.items() if path.parent == folder})
        if digest not in self._left:
            self._left.add(digest)
            self._look_again(left, found)
            if self.goes_on:
                self._go_on(left, found)
        return found

    def _given(self, state: State) -> int:
        """The offset behind the last message that is whole on disk, wherever it stands."""
        segments = [data for path, data in state.items() if path.name.endswith(SEGMENT)]
        return max(
            (
                row_group.end
                for row_group in self.life.row_groups()
                for data in segments
                if data.startswith(row_group.data, row_group.position)
            ),
            default=0,
        )

    def _look_again(self, left: State, found: Found) -> None:
        """What was recovered is in order, and left alone by the next recovery."""
        folder = self.life.folder
        files = RecordedFiles(left)
        again = recover(files, folder, log_id=LOG_ID)
        TopicJournal(files, folder).load()
        assert files.state == left, "a recovered log is left as it is"
        assert again.next_offset == found.recovered.next_offset
        assert again.segments == found.recovered.segments
        assert (again.previous_end, again.previous_crc) == found.recovered[-2:]
        wrong = [
            each
            for each in verify(files, folder)
            if not isinstance(each, Verified) and each.fault is not Fault.GAP
        ]
        assert not (wrong and self.lossless), wrong[0]

    def _go_on(self, left: State, found: Found) -> None:
        """The log takes messages again, and keeps them through the next power cut and a restart."""
        self.tried.went_on += 1
        life = Life(RecordedFiles(left), self.life.folder)
        life.files.failures = 0 if self.lossless else 1
        life.sent |= found.rows
        session = Session(life)
        assert session.next_offset == found.recovered.next_offset
        session.add_topic("later")
        assert session.commit([SMALL, SMALL])
        length = len(life.files.operations)
        for at, disk in cuts(life.files):
            if at == length:
                self._keeps(disk.nothing, life, life.promise(at))
        assert session.commit([SMALL])
        session.close()
        self._keeps(life.files.state, life, life.promise(len(life.files.operations)))

    def _keeps(self, state: State, life: Life, promise: Promise) -> None:
        files = RecordedFiles(state)
        recovered = recover(files, life.folder, log_id=LOG_ID)
        rows = rows_of(files, recovered, life.folder, damaged=not self.lossless)
        assert promise.rows <= frozenset(rows)
        assert len({row.offset for row in rows}) == len(rows)
        names = {name for name, _ in TopicJournal(files, life.folder).load().names}
        assert promise.topics <= names
        if self.lossless:
            assert not recovered.damage, recovered.damage[0]


def _digest(state: State) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path, data in sorted((str(path), data) for path, data in state.items()):
        digest.update(b"%b %d " % (path.encode(), len(data)))
        digest.update(data)
    return digest.digest()
