"""The state of a consumer group: messages that are done, and the members that have the others.

    offset   0 ……………… position ………………………………………………… next ……………→ end of the partition
             all are done │ leased, waiting or done │ not given out yet

A log may have several partitions, and each has a `next` of its own. Offsets are places: they say
which partition it is, see `penstock.core.groups.places`.

A message is *leased* from its delivery to a member until it is done, fails, or its time is over. A
message that failed, or whose member has left, *waits* to be delivered again; one that failed too
often is *buried*: it goes to the dead letters. Messages that the group does not read are done as
soon as `next` has passed them.

Failures are counted, not deliveries, because a member gets many messages before it processes them.
If a member is lost or silent, only its first message fails, in the order of delivery: the one that
it was probably processing. The others wait with their failures unchanged. If another message stops
members, it becomes the first one in the end, since the others get acknowledged.

Members get runs of messages, and a run is one lease, so that acknowledging it takes one step. All
methods are deterministic, and time is passed in.

A member has `ack_wait_seconds` for what comes next: its time starts with a delivery, and again with
each acknowledgment. So a member that is slow keeps a long run while it works through it. Leases
that were given to it before the one that it acknowledges are *passed*: their time starts once more
at that moment, and acknowledgments of others do not prolong it.

    leases of a member   passed │ passed │ acknowledged in part │ not begun │ not begun
                         └ own time each ┘ └─────── since its last acknowledgment ──────┘
"""

import dataclasses
import heapq
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sized
from itertools import takewhile
from typing import Final, NamedTuple

from penstock.core.groups.places import offset_of, partition_of
from penstock.core.groups.snapshots import LeasedRows, Snapshot
from penstock.limits import (
    GROUP_ACK_WAIT_SECONDS,
    GROUP_DEAD_MAX,
    GROUP_DELIVERIES_MAX,
    GROUP_UNACKED_DEFAULT,
)
from penstock.ports import PendingRun

__all__ = ["Failure", "GroupSettings", "Lease", "Ledger"]

_SPARSE_ENTRY_BYTES: Final = 400
"""Dictionaries that have just grown take up to 200 for each entry."""
_SPARSE_BYTES_MIN: Final = 16 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of a consumer group."""

    ack_wait_seconds: float = GROUP_ACK_WAIT_SECONDS
    """Time without an acknowledgment of a member, before others get its messages."""
    deliveries_max: int = GROUP_DELIVERIES_MAX
    """Failed deliveries after which a message goes to the dead letters."""
    unacked_max: int = GROUP_UNACKED_DEFAULT
    """Messages that all members together may hold without having acknowledged them."""


class Failure(NamedTuple):
    """Why a message goes to the dead letters, and how many deliveries failed."""

    reason: str
    failures: int
    reason_bytes: int = 0
    """Memory of the reason, if it is the text of a member."""


class Lease:
    """A run of messages that one member has: rows behind a base offset, in order."""

    __slots__ = (
        "_done",
        "base",
        "failures",
        "first_id",
        "first_number",
        "left",
        "member",
        "number",
        "rows",
        "since",
        "written",
    )

    def __init__(
        self,
        member: Hashable,
        base: int,
        rows: "array[int]",
        *,
        number: int,
        failures: int,
        now: float,
    ) -> None:
        self.member = member
        self.base = base
        self.rows = rows
        self.number = number  # in the order of all leases of the group
        self.failures = failures  # of each message, before
        self.since = now  # when it was given, or passed
        self.left = len(rows)  # messages that are not done
        self._done: bytearray | None = None  # which are done, if only some are
        # How the member refers to its messages; set when they are sent.
        self.first_number = 0  # the first one's number among all that the member got
        self.first_id = 0  # the first one's id on the wire, where it has one
        self.written: int | None = None  # bytes written to the link behind the last one

    def __len__(self) -> int:
        return len(self.rows)

    def is_done(self, index: int) -> bool:
        """Return whether a message is no longer leased."""
        return not self.left or (self._done is not None and bool(self._done[index]))

    def offset(self, index: int) -> int:
        """Return the offset of a message."""
        return self.base + self.rows[index]

    def finish(self, index: int) -> bool:
        """End the lease of one message; return False if it had ended before."""
        if self.is_done(index):
            return False
        if self._done is None:
            self._done = bytearray(len(self.rows))
        self._done[index] = 1
        self.left -= 1
        return True

    def finish_run(self, first: int, end: int) -> int:
        """End the leases of a run of messages; return how many had not ended before."""
        if not self.left:
            return 0
        if self._done is None:
            if end - first == len(self.rows):
                self.left = 0
                return end - first
            self._done = bytearray(len(self.rows))
        count = end - first - self._done.count(1, first, end)
        self._done[first:end] = b"\x01" * (end - first)
        self.left -= count
        return count

    def run_end(self, index: int, end: int) -> int:
        """Return the end of the run of leased messages from `index` on, `end` at most."""
        found = -1 if self._done is None else self._done.find(1, index, end)
        return end if found < 0 else found

    @property
    def first_left(self) -> int:
        """The index of the first message that is leased; there is one."""
        return 0 if self._done is None else self._done.index(0)

    @property
    def lowest(self) -> int:
        """The first offset that is leased; there is one."""
        return self.offset(self.first_left)

    def offsets(self) -> Iterator[int]:
        """Yield the offsets that are leased."""
        if self.left:
            for index, row in enumerate(self.rows):
                if self._done is None or not self._done[index]:
                    yield self.base + row

    def copied(self) -> LeasedRows:
        """Return the messages that are leased now, at least one."""
        done = None if self._done is None else bytes(self._done)
        return LeasedRows(self.base, self.rows, done, self.failures)


class _Holding:
    """The leases of one member."""

    __slots__ = ("active_at", "ahead", "count", "leases")

    def __init__(self, now: float) -> None:
        self.leases: dict[Lease, None] = {}
        self.ahead: deque[Lease] = deque()  # those that are not passed, and some that have ended
        self.count = 0  # messages
        self.active_at = now  # when the first was given, or the last acknowledged


class Ledger:
    """The messages of one group. `changes` counts what a stored state would not have."""

    def __init__(
        self,
        *next_offsets: int,
        settings: GroupSettings | None = None,
        pending: Iterable[PendingRun] = (),
        dead: Iterable[int] = (),
    ) -> None:
        """`next_offsets` are the first ones that are given out, one of each partition."""
        self.settings = settings or GroupSettings()
        self._next = {partition_of(offset): offset for offset in next_offsets}
        self.waiting: dict[int, int] = {}  # offsets to deliver again, with their failures so far
        self.deferred: dict[int, int] = {}  # like `waiting`, but not before `resume_deferred`
        self.buried: OrderedDict[int, Failure] = OrderedDict()
        """Offsets whose dead letters are not in the log yet."""
        self.reason_bytes = 0
        """Memory of the reasons that members gave for buried messages."""
        self._last_failure: Failure | None = None  # that of the last buried message
        self.dead: OrderedDict[int, None] = OrderedDict.fromkeys(dead)
        """Offsets of the last dead letters in the log, until their messages were processed."""
        self._redriven: set[int] = set()  # the offsets in `dead` that are delivered again
        self.changes = 0
        self.leased = 0
        """Messages that members have and that are not done."""
        self._touched: dict[Hashable, None] = {}  # members that hold more or less than before
        self._order: list[int] = []  # a heap of the offsets that wait, and of some that did
        self._leases: dict[Lease, None] = {}
        self._passed: dict[Lease, None] = {}  # in the order in which their time is over
        self._holdings: dict[Hashable, _Holding] = {}
        self._numbers = 0
        for run in pending:
            for offset in range(run.first, run.first + run.size):
                self._wait(offset, run.failures, "it failed before the broker was restarted")
                if offset in self.dead:
                    self._redriven.add(offset)

    # --- Figures ----------------------------------------------------------------------------------

    @property
    def unacked(self) -> int:
        """Messages that were given out and are not done."""
        return self.leased + len(self.waiting) + len(self.deferred) + len(self.buried)

    def held_by(self, member: Hashable) -> int:
        """Return the number of messages that a member has."""
        holding = self._holdings.get(member)
        return 0 if holding is None else holding.count

    def take_touched(self) -> Iterable[Hashable]:
        """Return the members that hold more or fewer messages than at the last call."""
        if not self._touched:
            return ()
        touched, self._touched = self._touched, {}
        return touched

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """The first offset of each partition that was not given out."""
        return self._next

    def next_beside(self, offset: int) -> int:
        """Return the first offset that was not given out, in the partition of another one."""
        return self._next[partition_of(offset)]

    @property
    def positions(self) -> dict[int, int]:
        """The first offset of each partition that is not done, counted in the partition."""
        found = dict(self._next)
        waiting: Iterable[int] = self.waiting
        if len(found) == 1:  # there may be many
            waiting = () if self.first_waiting is None else (self.first_waiting,)
        leased = (lease.lowest for lease in self._leases)
        for offsets in (leased, waiting, self.deferred, self.buried):
            for offset in offsets:
                number = partition_of(offset)
                if offset < found.get(number, offset + 1):
                    found[number] = offset
        return {number: offset_of(offset) for number, offset in found.items()}

    @property
    def first_waiting(self) -> int | None:
        """The first offset that waits to be delivered again; None if there is none."""
        order = self._order
        while order and order[0] not in self.waiting:
            heapq.heappop(order)
        return order[0] if order else None

    def waiting_in(self, first: int, end: int, *, count: int) -> list[int]:
        """Return the first offsets of a range that wait, in order, `count` at most."""
        order = self._order
        found: list[int] = []
        below: list[int] = []
        last = -1
        while order and order[0] < end and len(found) < count:
            offset = heapq.heappop(order)
            if offset in self.waiting and offset != last:
                (below if offset < first else found).append(offset)
                last = offset
        for offset in (*below, *found):
            heapq.heappush(order, offset)
        return found

    def snapshot(self) -> Snapshot:
        """Return a copy of the state to store."""
        return Snapshot(
            nexts={number: offset_of(offset) for number, offset in self._next.items()},
            leased=[lease.copied() for lease in self._leases],
            offsets=[
                self.waiting | self.deferred,
                {offset: each.failures for offset, each in self.buried.items()},
            ],
            dead=tuple(self.dead),
        )

    # --- Delivery ---------------------------------------------------------------------------------

    def pass_over(self, offset: int) -> None:
        """Give out no message before `offset` in its partition for the first time any more."""
        number = partition_of(offset)
        if offset > self._next.get(number, -1):
            self._next[number] = offset
            self.changes += 1

    def lease(
        self, member: Hashable, base: int, rows: "array[int]", *, now: float, failures: int = 0
    ) -> Lease:
        """Give messages to a member; each of them has failed `failures` times before."""
        self._numbers += 1
        number = self._numbers
        lease = Lease(member, base, rows, number=number, failures=failures, now=now)
        if self.waiting:
            for row in rows:
                self.waiting.pop(base + row, None)
        self._leases[lease] = None
        holding = self._holdings.get(member)
        if holding is None:
            holding = self._holdings[member] = _Holding(now)
        holding.leases[lease] = None
        holding.ahead.append(lease)
        holding.count += len(rows)
        self._touched[member] = None
        self.leased += len(rows)
        self.changes += 1
        return lease

    def put_back(self, base: int, rows: Iterable[int]) -> None:
        """Let messages wait that could not be delivered."""
        for row in rows:
            if base + row not in self.waiting:
                self._wait(base + row, 0, "")

    def defer(self, offset: int, failures: int) -> None:
        """Let a message wait until `resume_deferred` is called."""
        if self.waiting.pop(offset, None) is None:
            self.changes += 1
        self.deferred[offset] = failures

    def resume_deferred(self) -> None:
        """Let deferred messages be delivered again."""
        for offset, failures in self.deferred.items():
            self.waiting[offset] = failures
            heapq.heappush(self._order, offset)
        self.deferred.clear()

    def drop_waiting(self, first: int, end: int) -> int:
        """Give up waiting messages of a range that cannot be read; return how many are lost.

        Redriven messages do not count as lost: their dead letters are in the log.
        """
        lost = 0
        for offsets in (self.waiting, self.deferred, self.buried):
            of_range: Iterable[int] = range(first, end)
            if end - first > len(offsets):
                of_range = [each for each in offsets if first <= each < end]
            for offset in of_range:
                if offset not in offsets:
                    continue
                if offsets is self.buried:
                    self.reason_bytes -= self.buried[offset].reason_bytes
                del offsets[offset]
                lost += offset not in self._redriven
                self._redriven.discard(offset)
                self.changes += 1
        return lost

    # --- Outcomes ---------------------------------------------------------------------------------

    def acknowledged(self, lease: Lease, *, now: float) -> None:
        """Start the time of a member again, because it acknowledges messages of this lease."""
        holding = self._holdings.get(lease.member)
        if holding is None:
            return
        holding.active_at = now
        ahead = holding.ahead
        while ahead and ahead[0].number < lease.number:
            passed = ahead.popleft()
            if passed.left:
                passed.since = now
                self._passed[passed] = None

    def done(self, lease: Lease, index: int) -> bool:
        """Note that a message was processed; return False if the member no longer has it."""
        if not lease.finish(index):
            return False
        if self._redriven:
            self._processed((lease.offset(index),))
        self._finished(lease, 1)
        return True

    def done_run(self, lease: Lease, first: int, end: int) -> int:
        """Note that a run of messages was processed; return how many the member had."""
        if self._redriven:
            self._processed(lease.offset(each) for each in range(first, end))
        count = lease.finish_run(first, end)
        if count:
            self._finished(lease, count)
        return count

    def all_done(self, lease: Lease) -> None:
        """Note that all messages of a lease were processed."""
        if self._redriven:
            self._processed(lease.offsets())
        self._end(lease)

    def _processed(self, offsets: Iterable[int]) -> None:
        """Forget the dead letters of messages that were processed after a redrive."""
        for offset in offsets:
            if offset in self._redriven:
                self._redriven.discard(offset)
                self.dead.pop(offset, None)

    def _end(self, lease: Lease) -> None:
        count = lease.left
        if count:
            lease.left = 0
            self._finished(lease, count)

    def fail(self, lease: Lease, index: int, reason: str, *, reason_bytes: int = 0) -> bool:
        """Note that a message could not be processed; False if the member no longer has it.

        `reason_bytes` is the memory of the reason, if it is the text of a member.
        """
        offset = lease.offset(index)
        if not lease.finish(index):
            return False
        self._finished(lease, 1)
        self._wait(offset, lease.failures + 1, reason, reason_bytes)
        return True

    def leave(self, member: Hashable, *, is_lost: bool = False) -> None:
        """Take all messages from a member; if the member is lost, its first message has failed."""
        for _ in self.leaving(member, is_lost=is_lost):
            pass

    def leaving(self, member: Hashable, *, is_lost: bool = False) -> Iterator[None]:
        """Do what `leave` does in steps: each takes the messages of one lease."""
        while (holding := self._holdings.get(member)) is not None:
            lease = next(iter(holding.leases))
            self._revoke(lease, "the member was lost", failed=int(is_lost))
            is_lost = False
            yield
        self._touched.pop(member, None)

    def expire(self, now: float) -> set[Hashable]:
        """Take messages from members whose time is over; return these members.

        All messages of passed leases have failed, and the first one of a member's other leases.
        """
        return set(self.expiring(now))

    def expiring(self, now: float) -> Iterator[Hashable]:
        """Do what `expire` does in steps: each takes the messages of one lease of a late member."""
        seconds = self.settings.ack_wait_seconds
        reason = "it was not acknowledged in time"
        for lease in list(takewhile(lambda lease: lease.since + seconds <= now, self._passed)):
            if lease.left:  # it may have ended between two steps
                self._revoke(lease, reason, failed=lease.left)
                yield lease.member
        for holding in list(self._holdings.values()):
            if holding.active_at + seconds > now:
                continue
            failed = 1
            for lease in takewhile(lambda lease: lease.since + seconds <= now, list(holding.ahead)):
                if holding.active_at + seconds > now:
                    break  # the member has acknowledged messages between two steps
                if lease.left:
                    self._revoke(lease, reason, failed=failed)
                    failed = 0
                    yield lease.member

    def _revoke(self, lease: Lease, reason: str, *, failed: int) -> None:
        """Let the messages of a lease wait; the first `failed` of them have failed."""
        offsets = list(lease.offsets())
        self._end(lease)
        for index, offset in enumerate(offsets):
            self._wait(offset, lease.failures + (index < failed), reason)

    def _finished(self, lease: Lease, count: int) -> None:
        """Count messages that are no longer leased, and remove the lease behind the last one."""
        holding = self._holdings[lease.member]
        holding.count -= count
        self._touched[lease.member] = None
        self.leased -= count
        self.changes += 1
        if lease.left:
            return
        del self._leases[lease]
        self._passed.pop(lease, None)
        del holding.leases[lease]
        while holding.ahead and not holding.ahead[0].left:
            holding.ahead.popleft()
        if not holding.leases:
            del self._holdings[lease.member]

    def _wait(self, offset: int, failures: int, reason: str, reason_bytes: int = 0) -> None:
        """Let a message wait, or bury it if it has failed too often."""
        self.changes += 1
        if failures >= self.settings.deliveries_max:
            failure = Failure(reason, failures, reason_bytes)
            if failure == self._last_failure:
                failure = self._last_failure  # many messages fail alike: they share one
            self._last_failure = self.buried[offset] = failure
            self.reason_bytes += reason_bytes
        else:
            self.waiting[offset] = failures
            heapq.heappush(self._order, offset)

    def compact(self) -> None:
        """Free unused memory of dictionaries, which do not shrink by themselves."""
        if not self.buried:
            self._last_failure = None
        if _is_sparse(self.waiting):
            self.waiting = dict(self.waiting)
        if _is_sparse(self.deferred):
            self.deferred = dict(self.deferred)
        if _is_sparse(self.buried):
            self.buried = OrderedDict(self.buried)

    # --- Dead letters and resets ------------------------------------------------------------------

    def is_dead(self, offset: int) -> None:
        """Note that the dead letter of a message is in the log."""
        failure = self.buried.pop(offset, None)
        if failure is not None:
            self.reason_bytes -= failure.reason_bytes
            self._redriven.discard(offset)
            self.dead.pop(offset, None)  # so that its new dead letter is the newest
            self.dead[offset] = None
            if len(self.dead) > GROUP_DEAD_MAX:
                oldest, _ = self.dead.popitem(last=False)
                self._redriven.discard(oldest)
            self.changes += 1

    @property
    def left_dead(self) -> list[int]:
        """The offsets with dead letters whose messages are not delivered again yet."""
        return [offset for offset in self.dead if offset not in self._redriven]

    def redrive(self, offsets: Iterable[int]) -> int:
        """Deliver messages with dead letters again, as if for the first time; return how many."""
        count = 0
        for offset in offsets:
            if offset in self.dead and offset not in self._redriven:
                self._redriven.add(offset)
                self._wait(offset, 0, "")
                count += 1
        return count

    def reset(self, *offsets: int) -> None:
        """Continue at an offset of each partition; those that are not named keep theirs.

        All messages that members have are taken from them.
        """
        for lease in list(self._leases):
            self._end(lease)
        self._redriven.clear()
        self.waiting.clear()
        self.deferred.clear()
        self._order.clear()
        self.buried.clear()
        self.reason_bytes = 0
        self._last_failure = None
        self._next.update((partition_of(offset), offset) for offset in offsets)
        self.changes += 1


def _is_sparse(offsets: Sized) -> bool:
    """Return whether a dictionary has far more memory than its entries need."""
    return sys.getsizeof(offsets) > _SPARSE_BYTES_MIN + _SPARSE_ENTRY_BYTES * len(offsets)
