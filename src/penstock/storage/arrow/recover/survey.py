"""What a segment holds and what of it is lost, by walking it: the basis of recovery.

A region that is no group is damage if it was on disk once, and a torn tail otherwise. It was on
disk if a later group says so (`synced`), if the segment was closed, or if another segment follows.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.damage import Damage, Fault
from penstock.storage.arrow.format.file_names import segment_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.recover.walk import Bad, End, Good, walk

__all__ = ["Survey", "Tail", "survey"]


class Tail(NamedTuple):
    """The end of a segment that does not belong to it, from `position` on.

    `keep` tells that it is not just a group that was not written to its end. Offsets below
    `resumes_at` were given to messages in it, as far as can be read.
    """

    position: int
    length: int
    first_offset: int
    resumes_at: int
    keep: bool
    reason: str


class Survey(NamedTuple):
    """A segment walked from end to end.

    `groups` are those that can be read; `content_size` is where they end, and where the end marker
    belongs. `last_crc` is the checksum of the last group, `previous_crc` if there is none.
    """

    groups: Index
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
    """Walk a segment behind its head; `head_size` is 0 if that cannot be read.

    `previous_crc` is what the head says of the group before the first, None if it is not to be
    trusted. `known` are the positions of damage that was written down before. `followed` tells that
    there is a later segment, and `previous_end` where that says that this one ends: nothing behind
    it counts, for its writers were told that it failed.
    """
    index = Index(base_offset)
    regions: list[tuple[Bad, int]] = []  # and how many groups stand before it
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
            group = step.group
            if previous_end is not None and group.base_offset >= previous_end:
                beyond = beyond or Tail(
                    step.position, size - step.position, group.base_offset, group.base_offset,
                    keep=True, reason="its writers were told that it failed",
                )  # fmt: skip
                beyond = beyond._replace(resumes_at=group.base_offset + group.count)
                continue
            index.add_group(step.data, group, step.position)
            crcs.append(group.crc32c)
            claim = max(claim, group.synced)
        elif isinstance(step, Bad):
            regions.append((step, len(index)))
        else:
            end = step
    if not head_size and len(index):
        claim = max(claim, base_offset + 1)  # the head is on disk before any group is written
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
    """Tell damage from a torn tail."""
    damage: list[Damage] = []
    given = max(
        [index.end_offset, *(bad.resumes_at for bad, _ in regions)]
        + ([beyond.resumes_at] if beyond else [])
    )
    tail = beyond._replace(resumes_at=given) if beyond else None
    reached = index.end_offset
    for bad, length in regions:
        if beyond is not None and bad.position > beyond.position:
            break  # all of it goes
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
