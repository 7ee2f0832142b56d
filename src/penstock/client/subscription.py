"""Where a subscription is in the log, and where it goes on after a reconnect."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from penstock.client.topics import TopicMatcher, is_in_group, resumed, without_replay
from penstock.positions import Anchor, Place
from penstock.replay import Ago, AtTime, split_replay

__all__ = ["Subscription", "text_to_restore"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Position(NamedTuple):
    """The offset behind the last message of a partition, and the latest time of a message."""

    log_id: int
    next_offset: int
    time_us: int
    is_final: bool


class Subscription:
    """A subscription of one iterator.

    It takes messages when the broker has said that it is in effect (`opened`), and each message
    once. It resumes by the time of its last message, not by its offset: a message that was
    delivered when the broker was killed may not be in the log, and another one then has its offset.
    A subscription resumes at the earliest time of its partitions. Partitions without new messages
    advance with the anchors that the broker sends meanwhile.
    """

    __slots__ = (
        "_anchored",
        "_began_us",
        "_in_group",
        "_names_group",
        "_noted",
        "_partitions",
        "_positions",
        "_starts",
        "covers",
        "is_open",
        "name",
        "pattern",
        "restored_by",
        "resumes",
    )

    def __init__(self, pattern: str, *, resumes: bool = True) -> None:
        self.pattern = pattern
        self.name = without_replay(pattern)
        """The pattern without its start position, by which the broker knows it."""
        self.restored_by = resumed(pattern)
        """The name, or the whole pattern of a group: each group has a position of its own."""
        self.covers = TopicMatcher(pattern)
        self._names_group = is_in_group(pattern)
        self._in_group = self._names_group  # the broker may put a herald channel in a group
        self.resumes = resumes and not self._names_group
        self.is_open = self._in_group
        self._starts = self._in_group or split_replay(pattern)[1] is not None
        self._anchored = False
        self._began_us: int | None = None  # where it began in history, if that is a time
        self._positions: dict[int, _Position] = {}
        self._noted: dict[int, _Position] = {}  # the positions at the last call of `was_quiet`
        self._partitions: frozenset[int] = frozenset()

    def connecting(self) -> None:
        """Wait until it is in effect on a new connection.

        Members of groups take everything: the group knows its place, and may deliver again.
        """
        self.is_open = self._in_group

    def takes(self, place: Place | None) -> bool:
        """Take note of a message; return False if it was taken before."""
        if place is None or self._in_group:
            return True
        time_us = place.time_us
        last = self._positions.get(place.partition)
        if last is not None and last.log_id == place.log_id:
            if place.offset < last.next_offset and (last.is_final or time_us <= last.time_us):
                return False
            time_us = max(time_us, last.time_us)
        self._positions[place.partition] = _Position(
            place.log_id, place.offset + 1, time_us, place.is_final
        )
        return True

    def opened(self, anchor: Anchor) -> str | None:
        """Take messages from now on; return why some may be missing, None if none is.

        If the subscription is in effect already, it has got all messages before the anchor, unless
        the anchor says that earlier messages follow.
        """
        self._join_or_leave(in_group=self._names_group or anchor.in_group)
        if self._in_group:
            return None
        if self.is_open:
            if not anchor.is_replay:
                self._move_to(anchor)
            return None
        self.is_open = True
        is_first, self._anchored = not self._anchored, True
        resumed_us = None if is_first else self.resume_us
        self._partitions |= anchor.partitions.keys()
        if is_first and (self._starts or anchor.is_replay):
            self._starts = True
            self._began_us = _began_us(self.pattern, anchor)
            return None  # it begins with whatever comes
        if is_first or not self.resumes:
            self._begin_at(anchor)
            return None
        if not anchor.has_history:
            self._begin_at(anchor)
            return "the broker keeps no log"
        if resumed_us is not None:
            self._begin_partitions(anchor, resumed_us)
        elif not self._starts:
            self._begin_at(anchor)
            return "the position of the subscription is not known"
        for number, known in self._positions.items():
            horizon = anchor.partitions[number].horizon if number in anchor.partitions else 0
            if known.log_id == anchor.log_id and horizon > known.next_offset:
                return (
                    f"messages below offset {horizon} may have been removed, and the last message "
                    f"that arrived is at offset {known.next_offset - 1}"
                )
        return None

    def _join_or_leave(self, *, in_group: bool) -> None:
        """Note whether messages are those of a group; forget the position if this changes."""
        if in_group != self._in_group:
            self._in_group = self.is_open = in_group
            self._anchored = False
            self._began_us = None
            self._positions, self._noted, self._partitions = {}, {}, frozenset()

    def _begin_at(self, anchor: Anchor) -> None:
        self._partitions = frozenset(anchor.partitions)
        self._positions = {
            number: _Position(anchor.log_id, each.next_offset, anchor.time_us, each.is_final)
            for number, each in anchor.partitions.items()
        }

    def _begin_partitions(self, anchor: Anchor, time_us: int) -> None:
        """Let partitions of new nodes, without any message so far, begin at the resume time."""
        for number, each in anchor.partitions.items():
            if number not in self._positions:
                self._positions[number] = _Position(anchor.log_id, 0, time_us, each.is_final)

    def _move_to(self, anchor: Anchor) -> None:
        """Move partitions to an anchor, except where the anchor is behind their position."""
        self._partitions |= anchor.partitions.keys()
        for number, each in anchor.partitions.items():
            known = self._positions.get(number)
            time_us = anchor.time_us
            if known is not None and known.log_id == anchor.log_id:
                if each.next_offset < known.next_offset:
                    continue
                time_us = max(time_us, known.time_us)
            self._positions[number] = _Position(
                anchor.log_id, each.next_offset, time_us, each.is_final
            )
        self._noted = dict(self._positions)

    def was_quiet(self) -> bool:
        """Return whether any partition had no message since the last call or the last anchor."""
        noted, self._noted = self._noted, dict(self._positions)
        if not self.resumes or not self.is_open or self._in_group:
            return False
        return not self._partitions <= self._positions.keys() or any(
            noted.get(number) is position for number, position in self._positions.items()
        )

    @property
    def resume_us(self) -> int | None:
        """The time at which it resumes; None if the time of a partition is not known."""
        known = self._positions
        if not self.resumes or not known:
            return None
        earliest_us = min(position.time_us for position in known.values())
        if self._partitions <= known.keys():
            return earliest_us
        return None if self._began_us is None else min(earliest_us, self._began_us)

    @property
    def text(self) -> str:
        """The pattern to send after a reconnect if the time of the last message is not known."""
        began = self._anchored and self.resumes and self._starts
        return self.pattern if began else resumed(self.pattern)


def _began_us(pattern: str, anchor: Anchor) -> int | None:
    """Return the time at which a new subscription begins, None if it begins at something else."""
    match split_replay(pattern)[1]:
        case Ago(us):
            return max(anchor.time_us - us, 0)
        case AtTime(us):
            return max(us, 0)
        case _:
            return None


def text_to_restore(subscriptions: Iterable[Subscription], *, earlier_us: int = 0) -> str:
    """Return the pattern to send after a reconnect, for subscriptions with the same name.

    They resume earlier by `earlier_us`, for late messages of partitions that began meanwhile.
    """
    subscriptions = list(subscriptions)
    times = [each.resume_us for each in subscriptions if each.resumes]
    known = [time_us for time_us in times if time_us is not None]
    if known and len(known) == len(times):
        moment = _EPOCH + timedelta(microseconds=max(min(known) - earlier_us, 0))
        return f"{subscriptions[0].name}@{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
    unknown = [each for each in subscriptions if each.resumes and each.resume_us is None]
    return (unknown or subscriptions)[0].text
