"""Copies consumer groups when a partition is moved: their offsets and their progress.

A group reads all partitions of its log, and a move copies one partition. So the part of a group's
state that belongs to this partition is added to the state that the target has of the group.
"""

from penstock.ports import ConsumerGroups, GroupProgress, GroupState
from penstock.ports.places import partition_of

__all__ = ["copy_groups"]


def copy_groups(source: ConsumerGroups, target: ConsumerGroups, *, partition: int) -> None:
    """Copy the state of all groups for one partition; raise OSError."""
    for name in source.all():
        state = source.load(name)
        if state is None or partition not in state.offsets:
            continue
        before = target.load(name)
        target.commit(
            name,
            {partition: state.offsets[partition]},
            lost=state.lost if before is None else 0,
            owner=state.owner,
            subscription=state.subscription,
            progress=_merged(None if before is None else before.progress, state, partition),
        )


def _merged(
    before: GroupProgress | None, state: GroupState, partition: int
) -> GroupProgress | None:
    """Return the target's progress with that of one partition added; it has no members."""
    progress = state.progress
    if progress is None:
        return before
    nexts = _nexts(progress)
    nexts = {partition: nexts.get(partition, state.offsets[partition])}
    pending = [each for each in progress.pending if partition_of(each.first) == partition]
    dead = [each for each in progress.dead if partition_of(each) == partition]
    if before is not None:
        nexts = _nexts(before) | nexts
        pending += [each for each in before.pending if partition_of(each.first) != partition]
        dead += [each for each in before.dead if partition_of(each) != partition]
    return GroupProgress(
        next=nexts.get(0, 0),
        pending=tuple(sorted(pending, key=lambda run: run.first)),
        dead=tuple(dead),
        ordered=progress.ordered,
        partitions={} if nexts.keys() == {0} else nexts,
    )


def _nexts(progress: GroupProgress) -> dict[int, int]:
    return dict(progress.partitions) or {0: progress.next}
