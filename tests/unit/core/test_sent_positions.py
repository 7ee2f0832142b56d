"""A client resumes behind nothing that its system did not acknowledge."""

import random

from penstock.core.sent_positions import SentPositions
from penstock.limits import SENT_POSITIONS_MAX


def test_all_acknowledged_is_the_present_position() -> None:
    sent = SentPositions()
    sent.note({"a": {0: 3}}, written=10, acknowledged=0)
    assert sent.acknowledged({"a": {0: 9}}, written=50, acknowledged=50) == {"a": {0: 9}}


def test_the_last_acknowledged_entry_counts() -> None:
    sent = SentPositions()
    for offset in range(10):
        sent.note({"a": {0: offset}}, written=100 * offset, acknowledged=0)
    for acknowledged, offset in ((0, 0), (99, 0), (100, 1), (555, 5), (899, 8), (999, 9)):
        got = sent.acknowledged({"a": {0: 12}}, written=1000, acknowledged=acknowledged)
        assert got == {"a": {0: offset}}


def test_a_position_that_moves_without_bytes_replaces_the_entry() -> None:
    sent = SentPositions()
    sent.note({"a": {0: 1}}, written=10, acknowledged=10)
    sent.note({"a": {0: 500}}, written=10, acknowledged=10)
    assert sent.acknowledged({"a": {0: 600}}, written=20, acknowledged=15) == {"a": {0: 500}}


def test_entries_that_are_acknowledged_are_removed() -> None:
    sent = SentPositions()
    for offset in range(3 * SENT_POSITIONS_MAX):
        sent.note({"a": {0: offset}}, written=100 * offset, acknowledged=100 * offset - 150)
        assert len(sent) <= 3
    written = 100 * offset
    got = sent.acknowledged({"a": {0: offset}}, written=written, acknowledged=written - 100)
    assert got == {"a": {0: offset - 1}}, "none of those in between was removed"


def test_a_later_subscription_resumes_at_its_start() -> None:
    sent = SentPositions()
    sent.note({"a": {0: 1}}, written=10, acknowledged=10)
    sent.note({"a": {0: 5}, "b": {0: 4}}, written=50, acknowledged=10)
    sent.note({"a": {0: 7}, "b": {0: 7}}, written=70, acknowledged=10)
    got = sent.acknowledged({"a": {0: 9}, "b": {0: 9}}, written=90, acknowledged=20)
    assert got == {"a": {0: 1}, "b": {0: 4}}


def test_nothing_is_skipped_and_entries_are_few_however_acknowledgments_come() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        sent = SentPositions()
        written = acknowledged = offset = 0
        ends: list[int] = []  # of each message, in bytes
        sent.note({"a": {0: 0}}, written=0, acknowledged=0)
        for _ in range(dice.randrange(1, 200)):
            for _ in range(dice.randrange(3)):
                written += dice.randrange(1, 40)
                ends.append(written)
                offset += 1
            if dice.random() < 0.3:
                acknowledged = dice.randrange(acknowledged, written + 1)
            sent.note({"a": {0: offset}}, written=written, acknowledged=acknowledged)
            assert len(sent) <= SENT_POSITIONS_MAX
        got = sent.acknowledged({"a": {0: offset}}, written=written, acknowledged=acknowledged)[
            "a"
        ][0]
        received = sum(end <= acknowledged for end in ends)
        assert got <= received
