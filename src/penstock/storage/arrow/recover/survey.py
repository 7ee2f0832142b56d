"""Walks a segment and tells damage from a torn tail: the basis of recovery.

A region that is not a row group is damage if it was on disk once, and a torn tail otherwise. It was
on disk if a later row group says so (`synced`), if the segment was closed, or if another segment
follows.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.recover.walk import Bad, End, Good, walk
from penstock.storage.files import Files

__all__ = ["Survey", "Tail", "survey"]


class Tail(NamedTuple):
    """The end of a segment that recovery cuts off, from `position` on.

    `keep` marks a tail that is more than one unfinished row group. Offsets below `resumes_at` were
    assigned to messages in it, as far as can be read.
    """

    position: int
    length: int
    first_offset: int
    resumes_at: int
    keep: bool
    reason: str


class Survey(NamedTuple):
    """Result of a walk through a segment.

    `row_groups` are the readable ones; they end at `content_size`, where the end marker belongs.
    `last_crc` is the checksum of the last row group, `previous_crc` if there is none.
    """

    row_groups: Index
    damage: list[Damage]
    tail: Tail | None
    sealed: bool
    content_size: int
    last_crc: int


def survey(
    files: Files,
    folder: Path,
    base_offset: int,
    *,
    head_size: int,
    previous_crc: int | None,
    followed: bool,
    previous_end: int | None,
    known: Collection[int] = (),
) -> Survey:
    """Walk a segment behind its head; `head_size` is 0 if the head cannot be read.

    `previous_crc` is the checksum that the head gives for the row group before, None if the head
    cannot be trusted. `known` are the positions of recorded damage. `followed` says that there is a
    later segment; `previous_end` is where its head says that this one ends. Later messages do not
    count: their senders were told that they failed.
    """
    index = Index(base_offset)
    regions: list[tuple[Bad, int]] = []  # with the number of row groups before it
    claim = base_offset
    crcs = [previous_crc or 0]
    end = End(0, sealed=False)
    beyond: Tail | None = None
    size = files.size(segment_path(folder, base_offset))
    for step in walk(
        files,
        segment_path(folder, base_offset),
        position=head_size,
        base_offset=base_offset,
        previous_crc=previous_crc,
    ):
        if isinstance(step, Good):
            row_group = step.row_group
            if previous_end is not None and row_group.base_offset >= previous_end:
                beyond = beyond or Tail(
                    step.position, size - step.position, row_group.base_offset,
                    row_group.base_offset, keep=True, reason="its writers were told that it failed",
                )  # fmt: skip
                beyond = beyond._replace(resumes_at=row_group.base_offset + row_group.count)
                continue
            index.add_row_group(step.data, row_group, step.position)
            crcs.append(row_group.crc32c)
            claim = max(claim, row_group.synced)
        elif isinstance(step, Bad):
            regions.append((step, len(index)))
        else:
            end = step
    if not head_size and len(index):
        claim = max(claim, base_offset + 1)  # the head is on disk before any row group is written
    return _judge(
        index, regions, crcs, end, beyond,
        size=size, claim=claim, followed=followed, previous_end=previous_end, known=known,
    )  # fmt: skip


def _judge(
    index: Index,
    regions: list[tuple[Bad, int]],
    crcs: list[int],
    end: End,
    beyond: Tail | None,
    *,
    size: int,
    claim: int,
    followed: bool,
    previous_end: int | None,
    known: Collection[int],
) -> Survey:
    """Distinguish damage from a torn tail."""
    damage: list[Damage] = []
    given = max(
        [index.end_offset, *(bad.resumes_at for bad, _ in regions)]
        + ([beyond.resumes_at] if beyond else [])
    )
    tail = beyond._replace(resumes_at=given) if beyond else None
    reached = index.end_offset
    for bad, length in regions:
        if beyond is not None and bad.position >= beyond.position:
            break  # the whole rest is cut off
        if followed and previous_end is not None:
            lost = bad.first_offset < previous_end
        else:
            lost = end.sealed or followed or bad.first_offset < claim
        if not lost and bad.position not in known:
            later = len(index) > length
            index.cut(length)
            del crcs[length + 1 :]
            tail = Tail(
                bad.position, size - bad.position, bad.first_offset, given,
                keep=bad.whole or later, reason=bad.reason,
            )  # fmt: skip
            reached = max([index.end_offset, *(each.resumes_at for each in damage)])
            break
        fault = Fault.DAMAGED if bad.fault is Fault.TORN else bad.fault
        if bad.position == 0:
            fault = Fault.BAD_HEAD
        elif (
            bad.length <= 8
            and bad.position + bad.length >= size
            and previous_end in {None, bad.first_offset}
        ):
            fault = Fault.BAD_END
        damage.append(
            Damage(fault, index.base_offset, bad.position, bad.length, bad.first_offset,
                   bad.resumes_at, bad.reason)
        )  # fmt: skip
        reached = max(reached, bad.resumes_at)
    content_size = tail.position if tail else end.position
    if previous_end is not None and reached < previous_end:
        last = damage[-1] if damage and damage[-1].resumes_at == reached else None
        if last is not None and last.position + last.length >= content_size and last.length:
            damage[-1] = last._replace(resumes_at=previous_end)
        else:
            damage.append(
                Damage(Fault.HOLE, index.base_offset, content_size, 0, reached, previous_end,
                       "the segment ends too early")
            )  # fmt: skip
        reached = previous_end
    index.end_offset = reached
    return Survey(index, damage, tail, end.sealed, content_size, crcs[-1])
