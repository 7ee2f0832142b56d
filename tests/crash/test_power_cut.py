"""Whatever a power cut leaves on disk, what was acknowledged is recovered: in order, none twice.

More states: `PENSTOCK_POWER_CUTS=50000 pytest tests/crash`.
"""

import os
import random
from pathlib import Path

import pytest

from penstock.log.damage import Fault
from penstock.log.names import partition_folder
from penstock.log.recovery import Recovered, recover
from penstock.log.retention import remove_segments
from penstock.log.segment import SegmentWriter
from penstock.log.state import LogState, save_state
from penstock.log.topics import TopicJournal, read_topics
from tests.support.log_rows import LOG_ID, columns, messages, text_of
from tests.support.recorded_files import PowerCut, RecordedFiles, State

FOLDER = partition_folder(Path("/data"), 0)
STATES = int(os.environ.get("PENSTOCK_POWER_CUTS", "1200"))
SEEDS = range(max(4, STATES // 300))
LOSSES = {Fault.DAMAGED, Fault.HOLE, Fault.MISSING_SEGMENT, Fault.BAD_HEAD}


class Life:
    """A log's life on recorded files: what was promised after how many operations."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = RecordedFiles()
        self.acknowledged: list[tuple[int, int]] = []
        self.topics_acknowledged: list[tuple[int, int]] = []
        self.horizons: list[tuple[int, int]] = []
        self.given: list[tuple[int, int]] = []
        self.gaps: set[int] = set()
        self.run()

    def run(self) -> None:
        chance = self.chance
        recovered = recover(self.files, FOLDER, log_id=LOG_ID)
        journal = TopicJournal(self.files, FOLDER)
        journal.load()
        self.state = recovered.state
        end, crc = recovered.previous_end, recovered.previous_crc
        offset = recovered.next_offset
        synced = end
        closed: list[int] = []
        topics = 0
        for number in range(4):
            segment = SegmentWriter(
                self.files, FOLDER, log_id=LOG_ID, partition=0,
                base_offset=offset, previous_end=end, previous_crc=crc,
            )  # fmt: skip
            abandoned = False
            for _ in range(chance.randint(1, 4)):
                mark = segment.mark
                first = offset
                for _ in range(chance.randint(1, 3)):
                    count = chance.randint(1, 3)
                    size = chance.choice((12, 12, 900, 5000))
                    values = [text_of(each, size) for each in range(offset, offset + count)]
                    self.given.append((len(self.files.operations), offset + count))
                    segment.append(columns(offset, values, topics=[f"t{number}"]), synced=synced)
                    offset += count
                journal.add(f"t{topics}", b"")
                topics += 1
                if number == 1 and chance.random() < 0.4:
                    # As after a sync that failed: nothing of this commit was acknowledged.
                    segment.abandon(mark)
                    self.gaps |= set(range(first, offset))
                    abandoned = True
                    break
                journal.write(sync=True)
                self.topics_acknowledged.append((len(self.files.operations), topics))
                if chance.random() < 0.7:
                    segment.sync()
                    synced = segment.end_offset
                    self.acknowledged.append((len(self.files.operations), synced))
            if len(segment.index):
                end, crc = segment.end_offset, segment.last_crc
            if not abandoned:
                segment.seal()
                synced = segment.end_offset
                self.acknowledged.append((len(self.files.operations), synced))
                closed.append(segment.base_offset)
            if len(closed) == 3:
                self.horizons.append((len(self.files.operations), closed[1]))
                save_state(self.files, FOLDER, LogState(LOG_ID, 0, horizon=closed[1]))
                remove_segments(self.files, FOLDER, closed[:1])

    def check(
        self, length: int, files: RecordedFiles, recovered: Recovered, *, lives: int = 1
    ) -> None:
        """What is recovered behind `length` operations is what was promised by then."""
        acknowledged = max((end for at, end in self.acknowledged if at <= length), default=0)
        horizon = max((each for at, each in self.horizons if at <= length), default=0)
        found = messages(files, FOLDER, recovered)
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets)), "in order, none twice"
        expected = set(range(horizon, acknowledged)) - self.gaps
        assert expected <= set(offsets), f"lost: {sorted(expected - set(offsets))[:5]}"
        for offset, value in found:
            assert value.startswith(b"%d." % offset), "a message that nobody sent"
        assert recovered.next_offset >= acknowledged
        assert not [each for each in recovered.damage if each.fault in LOSSES], lives
        named = max((count for at, count in self.topics_acknowledged if at <= length), default=0)
        names = {name for name, _ in read_topics(files, FOLDER).names}
        assert names >= {f"t{number}" for number in range(named)}


def recovered_from(state: State) -> tuple[RecordedFiles, Recovered]:
    files = RecordedFiles(state)
    recovered = recover(files, FOLDER, log_id=LOG_ID)
    journal = TopicJournal(files, FOLDER)
    journal.load()
    return files, recovered


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_outlives_a_power_cut_at_any_point(seed: int) -> None:
    life = Life(seed)
    lengths = range(len(life.files.operations) + 1)
    chance = random.Random(seed)
    tried = cut_short = 0
    for length in lengths:
        cut = PowerCut(life.files, length)
        for number, state in enumerate(
            cut.states(chance, max(4, STATES // len(SEEDS) // len(lengths)))
        ):
            tried += 1
            files, recovered = recovered_from(state)
            life.check(length, files, recovered)

            again, second = recovered_from(files.state)
            assert again.state == files.state, "a recovered log is left as it is"
            assert second.next_offset == recovered.next_offset
            assert second.segments == recovered.segments

            if number == 0 and files.operations:
                # The power fails again while the log recovers.
                at = chance.randrange(len(files.operations) + 1)
                for broken in PowerCut(files, at).states(chance, 2):
                    tried += 1
                    cut_short += 1
                    final, third = recovered_from(broken)
                    life.check(length, final, third, lives=2)
                    assert third.next_offset >= recovered.next_offset
    print(f"seed {seed}: {tried} states of {len(lengths)} points, {cut_short} within recovery")  # noqa: T201 - how much was tried
    assert tried >= 250
    assert cut_short > 20
