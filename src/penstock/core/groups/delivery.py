"""Delivery to the members of consumer groups, always from the log.

A group reads the row groups that have its next messages, gives its members runs of rows, as many
as they have room for, and encodes each run once. So Python runs once for each run. While members
get these, the next row groups are read ahead. Only GROUP_FETCHES_MAX reads run at a time, and
GROUP_ROW_GROUPS_MAX groups keep what they have read until members have room for the rest of it;
the others read it again. What a group has read is delivered at once, before any other group can
take its place.

Groups are woken when the log has written, and when a member has joined, has acknowledged messages
or can read more. They deliver for GROUP_DELIVERY_SECONDS_MAX, and go on in a later turn of the
event loop.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice

import structlog

from penstock._kernels.batch import Batch
from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.core.encoders import Encoders
from penstock.core.groups.group import Group, Member
from penstock.core.groups.places import PlacedReader, offset_of, partition_of, place_of
from penstock.core.groups.repeated_events import RepeatedEvents
from penstock.core.partitions import OwnPartition
from penstock.core.position_marks import PositionMarks
from penstock.core.routing import Router
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.errors import (
    CallerError,
    LogDamaged,
    LogError,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.limits import (
    CATCH_UP_PIECE_BYTES,
    GROUP_ASKED_MAX,
    GROUP_DELIVERY_SECONDS_MAX,
    GROUP_FETCHES_MAX,
    GROUP_ORDERED_ROWS_MAX,
    GROUP_PIECE_ROWS_MAX,
    GROUP_READ_RETRY_SECONDS,
    GROUP_ROW_GROUPS_MAX,
    GROUP_SETTLED_SECONDS,
    GROUPS_SETTLED_AT_ONCE_MAX,
)
from penstock.ports import AcknowledgedLink, Clock, Fetched, Stored
from penstock.protocols import Protocol

__all__ = ["GroupDelivery"]

log = structlog.get_logger("penstock.groups")


class GroupDelivery:
    """Gives messages of the log to the members of groups."""

    def __init__(
        self,
        *,
        reader: PlacedReader,
        topics: TopicTable,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        clock: Clock,
        timers: Timers,
        slices: Slices,
        changed: Callable[[Group], None],
        blocked: Callable[[], None],
        sent: Callable[[Member], None],
    ) -> None:
        """Call `changed` when a state must be stored, and `sent` when a member got messages.

        Call `blocked` if links of members take no bytes.
        """
        self._reader = reader
        self._topics = topics
        self._router = router
        self._encoders = encoders
        self._counters = counters
        self._clock = clock
        self._timers = timers
        self._slices = slices
        self._changed = changed
        self._blocked = blocked
        self._sent = sent
        self._batch = Batch()
        self._loaded: tuple[Stored, int] | None = None  # in the batch; removals of topics then
        self._ready: OrderedDict[Group, None] = OrderedDict()
        self._awaiting_log: dict[Group, None] = {}
        self._with_rows: dict[Group, None] = {}  # groups that keep row groups, the oldest first
        self._fetches = 0
        self._is_running = False
        self._ends = 0.0  # monotonic time at which delivery stops for other work
        self._goes_on = False  # whether groups go on in a later turn of the loop
        self._rests = False  # whether groups that wait for the log are woken later
        self.is_stopped = False
        self.without_memory = RepeatedEvents("group waits for memory", timers)
        """Log events of groups that find no memory for further messages."""

    # --- Turns ------------------------------------------------------------------------------------

    def wake(self, group: Group) -> None:
        """Let a group deliver what it can."""
        self._ready[group] = None
        if not self._goes_on:
            self._run()

    def settled(self) -> None:
        """Wake the groups that waited for the log.

        Many groups are not woken for each commit: the next one wakes them after a time that grows
        with their number.
        """
        count = len(self._awaiting_log)
        if count and not self._rests:
            self._ready.update(self._awaiting_log)
            self._awaiting_log.clear()
            if count > GROUPS_SETTLED_AT_ONCE_MAX:
                self._rests = True
                self._timers.after(count * GROUP_SETTLED_SECONDS, self._rested)
            if not self._goes_on:
                self._run()

    def _rested(self) -> None:
        self._rests = False
        self.settled()

    def forget(self, group: Group) -> None:
        """Remove a group."""
        self._ready.pop(group, None)
        self._awaiting_log.pop(group, None)
        self._keep(group, None)
        if not self._is_running:  # it may be called back by a write
            self._unload()

    def _run(self, arrived: Group | None = None) -> None:
        """Let groups take turns; first `arrived`, whose rows were read, before it loses them."""
        if self._is_running:  # a write may call back
            if arrived is not None:
                self._ready[arrived] = None
            return
        self._is_running = True
        self._ends = self._clock.monotonic() + GROUP_DELIVERY_SECONDS_MAX
        try:
            if arrived is not None:
                self._ready.pop(arrived, None)
                self._take_turn(arrived, may_read=False)
            while self._ready and self._fetches < GROUP_FETCHES_MAX:
                if self._clock.monotonic() >= self._ends:
                    self._go_on_later()
                    break
                group, _ = self._ready.popitem(last=False)
                self._take_turn(group)
        finally:
            self._is_running = False

    def _go_on_later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self._slices.add(self._go_on())

    def _go_on(self) -> Iterator[None]:
        self._goes_on = False
        self._run()
        yield from ()

    def _pauses(self, group: Group) -> bool:
        """Return whether the time of delivery is over; then the group goes on first, later."""
        if self._clock.monotonic() < self._ends:
            return False
        self._ready[group] = None
        self._ready.move_to_end(group, last=False)
        self._go_on_later()
        return True

    def _take_turn(self, group: Group, *, may_read: bool = True) -> None:
        """Deliver from the row groups that are in memory, then read others.

        Without `may_read`, read in a later turn, since other groups may wait for this turn to end.
        """
        while not group.is_fetching and self._may_deliver(group):
            offset = self._wanted_offset(group)
            if offset is None:
                return
            fetched = group.fetched
            if fetched is None or not group.fetched_from <= offset < fetched.end:
                if self._take_ahead(group, offset):
                    continue
                if not may_read:
                    self._ready[group] = None
                elif not (group.is_reading_ahead and group.ahead_from == offset):
                    self._fetch(group, offset)
                return
            self._read_ahead(group, fetched.end)
            stored = _row_group_at(fetched, offset)
            start = fetched.end if stored is None else stored.base_offset
            if stored is None or offset < start:
                # Other topics, or commits that failed and have no rows.
                self._skip(group, offset, start)
                self._changed(group)
            elif not self._serve(group, stored):
                return  # until a member has room, or later in turn
            if self._pauses(group):
                return

    def _may_deliver(self, group: Group) -> bool:
        if self.is_stopped or group.is_removed or group.start_us is not None or not group.is_routed:
            return False
        if self._clock.monotonic() < group.retry_at:
            return False
        if group.is_ordered and group.leaving:
            return False  # messages of members that left are delivered first
        if group.awaits_move:
            if group.ledger.leased:
                return False  # no member has messages of a topic that moves to another one
            group.awaits_move = False
        has_room = group.order.first is not None
        if group.order.blocked:
            self._blocked()
        return has_room or self._has_acknowledged(group)

    def _has_acknowledged(self, group: Group) -> bool:
        """Ask links for acknowledged bytes; return whether a member has room now.

        Only GROUP_ASKED_MAX members are asked, since all are polled anyway.
        """
        now = self._clock.monotonic()
        some = islice(group.members, GROUP_ASKED_MAX)
        taken = [each.take_acknowledged(now) for each in some if not each.answers]
        return any(taken) and group.order.first is not None

    def _wanted_offset(self, group: Group) -> int | None:
        """Return the next offset to deliver; None if the log does not have it yet."""
        waiting = group.ledger.first_waiting
        if waiting is not None:
            return waiting
        if group.ledger.unacked >= group.ledger.settings.unacked_max:
            return None
        if group.fetched is not None:
            offset = group.ledger.next_beside(group.fetched_from)
            if group.fetched_from <= offset < group.fetched.end:
                return offset if self._memory_for(group, 1) else None
        number = self._next_partition(group)
        if number is None:
            self._awaiting_log[group] = None
            return None
        if not self._memory_for(group, 1):
            return None
        return group.ledger.next_offsets[number]

    def _next_partition(self, group: Group) -> int | None:
        """Return the partition that is read next: all that have messages take turns."""
        ledger, last, now = group.ledger, partition_of(group.fetched_from), self._clock.monotonic()
        found: int | None = None
        for number in sorted(self._reader.partitions):
            if number not in ledger.next_offsets:  # it had no messages when the group began
                ledger.pass_over(self._reader.horizon(number))
            if (
                ledger.next_offsets[number] < self._reader.end(number)
                and group.retries.get(number, 0.0) <= now
            ):
                if number > last:
                    return number
                found = number if found is None else found
        return found

    # --- Reading ----------------------------------------------------------------------------------

    def _take_ahead(self, group: Group, offset: int) -> bool:
        """Use what was read ahead; return False if it does not have `offset`."""
        ahead = group.ahead
        if ahead is not None and group.ahead_from <= offset < ahead.end:
            self._keep(group, ahead)
            group.fetched_from, group.ahead = group.ahead_from, None
            return True
        return False

    def _read_ahead(self, group: Group, offset: int) -> None:
        """Read what follows the row groups that members get now, if the log has it."""
        if (
            group.is_reading_ahead
            or group.ahead_from == offset  # it was read, or cannot be
            or offset >= self._reader.end(partition_of(offset))
            or self._next_partition(group) != partition_of(offset)
            or self._fetches >= GROUP_FETCHES_MAX
        ):
            return
        group.is_reading_ahead, group.ahead, group.ahead_from = True, None, offset
        self._read(group, offset, lambda result: self._have_ahead(group, result))

    def _have_ahead(self, group: Group, result: Fetched | LogError) -> None:
        self._fetches -= 1
        group.is_reading_ahead = False
        if not group.is_removed:
            if isinstance(result, Fetched) and group in self._with_rows:
                group.ahead = result  # if it cannot be read, `_fetch` says so
            self._ready[group] = None
        self._run()

    def _fetch(self, group: Group, offset: int) -> None:
        self._keep(group, None)
        group.is_fetching = True
        self._read(group, offset, lambda result: self._fetched(group, offset, result))

    def _read(self, group: Group, offset: int, done: Callable[[Fetched | LogError], None]) -> None:
        self._fetches += 1
        is_calling = True

        def then(result: Fetched | LogError) -> None:
            if is_calling:
                self._timers.after(0.0, lambda: done(result))
            else:
                done(result)

        self._reader.fetch(offset, then, group.topics)
        is_calling = False

    def _fetched(self, group: Group, offset: int, result: Fetched | LogError) -> None:
        self._fetches -= 1
        group.is_fetching = False
        if not group.is_removed:
            if isinstance(result, LogError):
                self._failed(group, offset, result)
            else:
                self._keep(group, result)
                group.fetched_from = offset
        self._run(None if group.is_removed else group)

    def _failed(self, group: Group, offset: int, error: LogError) -> None:
        base = place_of(partition_of(offset), 0)
        match error:
            case OffsetBelowHorizon(horizon=horizon):
                self._lose(group, offset, base + horizon, "history overtaken", str(error))
            case LogDamaged(resumes_at=resumes_at):
                self._lose(group, offset, base + resumes_at, "history unreadable", str(error))
            case _:
                if not isinstance(error, OffsetPastEnd):
                    log.warning("group cannot read", group=group.name, error=str(error))
                retry_at = self._clock.monotonic() + GROUP_READ_RETRY_SECONDS
                if offset in group.ledger.waiting:
                    group.retry_at = retry_at
                else:  # other partitions can be read meanwhile
                    group.retries[partition_of(offset)] = retry_at
                self._timers.after(GROUP_READ_RETRY_SECONDS, lambda: self.wake(group))

    def _lose(self, group: Group, offset: int, end: int, event: str, reason: str) -> None:
        """Go on behind messages that cannot be read."""
        lost = self._skip(group, offset, end)
        group.lost += lost
        log.warning(event, group=group.name, messages=lost, reason=reason)
        self._changed(group)

    def _skip(self, group: Group, offset: int, end: int) -> int:
        """Pass over offsets; return the number of messages that were given up, at most."""
        ledger = group.ledger
        lost = ledger.drop_waiting(offset, end)
        next_offset = ledger.next_beside(offset)
        if offset <= next_offset < end:
            lost += end - next_offset
            ledger.pass_over(end)
        return lost

    def _keep(self, group: Group, fetched: Fetched | None) -> None:
        """Keep row groups for a group, or release them; of too many, release the oldest."""
        group.fetched = fetched
        self._with_rows.pop(group, None)
        if fetched is None:
            group.ahead = None
        else:
            self._with_rows[group] = None
            if len(self._with_rows) > GROUP_ROW_GROUPS_MAX:
                oldest = next(iter(self._with_rows))
                del self._with_rows[oldest]
                oldest.fetched = oldest.ahead = None

    # --- Giving out -------------------------------------------------------------------------------

    def _serve(self, group: Group, stored: Stored) -> bool:
        """Give out messages of a row group; return False if some have to wait.

        They wait until members have room, or until a later turn of the loop.
        """
        batch, ledger, base = self._batch, group.ledger, stored.base_offset
        end = base + stored.count
        changes, first = ledger.changes, ledger.next_beside(base)
        has_room = True
        try:
            try:
                self._load(stored)
            except (ValueError, CallerError) as error:
                self._lose(group, base, end, "history unreadable", str(error))
                return True
            wanted = self.wanted(group, batch)
            has_room = not group.is_ordered or self._place_topics(group, batch, wanted)
            has_room = has_room and self._serve_again(group, stored, wanted)
            if has_room and ledger.first_waiting is None and ledger.next_beside(base) < end:
                if not wanted:
                    ledger.pass_over(end)
                elif group.is_ordered:
                    has_room = self._serve_in_order(group, stored)
                else:
                    has_room = self._serve_spread(group, stored, wanted)
            if first < ledger.next_beside(base):
                self._count_expired(group, stored, first=first)
            return has_room
        finally:
            if has_room:
                self._unload()
            if ledger.changes != changes:
                self._changed(group)

    def _count_expired(self, group: Group, stored: Stored, *, first: int) -> None:
        """Count the messages from offset `first` up to the next one that expired unread."""
        base = stored.base_offset
        lost = stored.expired(
            group.since,
            _everything if group.topics is None else group.topics.wants,
            first=max(first - base, 0),
            last=min(group.ledger.next_beside(base) - base, stored.count),
        )
        if lost:
            group.lost += lost
            log.warning("history overtaken", group=group.name, messages=lost, reason="expired")
            self._changed(group)

    def _load(self, stored: Stored) -> None:
        """Load a row group, unless it is in the batch: members take a large one in many parts."""
        loaded = (stored, self._topics.removals)
        if self._loaded != loaded:
            self._unload()
            stored.load(self._batch, self._topics)
            self._loaded = loaded

    def _unload(self) -> None:
        self._loaded = None
        self._batch.clear()

    def wanted(self, group: Group, batch: Batch) -> bytes:
        """Mark the routes of a batch that a group reads; its own dead letters are not read."""
        wanted = self._router.wanted(batch, group.mark, lambda text: text == group.pattern)
        if wanted and group.reads_dead_letters:
            dead = self._router.wanted(batch, group.mark, lambda text: text == group.dead_topic)
            marks = bytearray(wanted)
            for route, is_dead in enumerate(dead[: len(marks)]):
                if is_dead:
                    marks[route] = 0
            wanted = bytes(marks) if any(marks) else b""
        return wanted

    def _serve_again(self, group: Group, stored: Stored, wanted: bytes) -> bool:
        """Give out the messages of a row group that wait; return False if some find no room."""
        base, end = stored.base_offset, stored.base_offset + stored.count
        while waiting := group.ledger.waiting_in(base, end, count=GROUP_PIECE_ROWS_MAX):
            if not self._serve_waiting(group, stored, wanted, waiting):
                return False
        return True

    def _serve_waiting(
        self, group: Group, stored: Stored, wanted: bytes, waiting: list[int]
    ) -> bool:
        """Give out messages that wait; return False if some find no room."""
        ledger, base = group.ledger, stored.base_offset
        while waiting:
            row = waiting[0] - base
            if not self._reads(wanted, row):  # its topic was deleted, or it has expired
                if ledger.drop_waiting(waiting[0], waiting[0] + 1):
                    group.lost += stored.expired(None, _everything, first=row, last=row + 1)
                waiting.pop(0)
                continue
            member = self._member_for(group, row)
            if member is None:
                return False
            room = self._room(group, member, len(waiting))
            failures = ledger.waiting[waiting[0]]
            rows = array("I")
            for offset in waiting:
                if (
                    len(rows) >= room
                    or not self._reads(wanted, offset - base)
                    or ledger.waiting[offset] != failures
                    or (group.is_ordered and self._owner(group, offset - base) is not member)
                ):
                    break
                rows.append(offset - base)
            if not self._send(group, member, base, rows, failures=failures):
                return False
            del waiting[: len(rows)]
            if self._pauses(group):
                return False
        return True

    def _reads(self, wanted: bytes, row: int) -> bool:
        """Return whether a row has a message that a group reads."""
        if self._batch.hidden(row):
            return False
        topic, routes = self._batch.topic_id(row), self._router.route_of_topic
        route = routes[topic] if topic < len(routes) else 0
        return route < len(wanted) and bool(wanted[route])

    def _member_for(self, group: Group, row: int) -> Member | None:
        """Return the member that gets a message, None if it has no room."""
        if not group.is_ordered:
            return group.order.first
        owner = self._owner(group, row)
        return owner if owner is not None and group.may_get(owner) else None

    def _owner(self, group: Group, row: int) -> Member | None:
        return group.owners.owner(self._batch.topic_id(row))

    def _room(self, group: Group, member: Member, count: int) -> int:
        """Return how many of `count` messages a member gets at a time."""
        ledger = group.ledger
        total = ledger.settings.unacked_max - ledger.leased
        return max(1, min(group.share - ledger.held_by(member), total, count, GROUP_PIECE_ROWS_MAX))

    def _memory_for(self, group: Group, count: int) -> int:
        """Return for how many of `count` further messages there is memory.

        If there is too little, the group tries again after GROUP_READ_RETRY_SECONDS.
        """
        found = group.memory.room(count)
        if found < count and not group.awaits_memory:
            group.awaits_memory = True
            self.without_memory.warn(group.name, messages=group.ledger.unacked)
            self._timers.after(GROUP_READ_RETRY_SECONDS, lambda: self._retry_memory(group))
        return found

    def _retry_memory(self, group: Group) -> None:
        group.awaits_memory = False
        self.wake(group)

    def _serve_spread(self, group: Group, stored: Stored, wanted: bytes) -> bool:
        """Give new messages of a row group to all members in turn; False if the rest waits."""
        ledger, base = group.ledger, stored.base_offset
        row = ledger.next_beside(base) - base
        selected, next_row = memoryview(b"").cast("I"), row
        part = at = 0
        while row < stored.count:
            member = group.order.first
            if member is None or ledger.unacked >= ledger.settings.unacked_max:
                return False
            if at == len(selected):
                selected, next_row = self._batch.select_piece(
                    self._router.route_of_topic,
                    wanted,
                    first_row=row,
                    last_row=stored.count,
                    bytes_max=CATCH_UP_PIECE_BYTES,
                )
                at = 0
                # The last piece is for all of them: one must not get all that there is.
                is_last = next_row >= stored.count
                part = -(-len(selected) // group.order.ready) if is_last else len(selected)
            if len(selected):
                room = self._room(group, member, min(part, len(selected) - at))
                room = self._memory_for(group, room)
                if not room:
                    return False
                rows = array("I")
                rows.frombytes(selected[at : at + room].tobytes())
                if not self._send(group, member, base, rows):
                    return False
                at += room
            row = selected[at] if at < len(selected) else next_row
            ledger.pass_over(base + row)
            if self._pauses(group):
                return False
        return True

    # --- Ordered groups ---------------------------------------------------------------------------

    def _place_topics(self, group: Group, batch: Batch, wanted: bytes) -> bool:
        """Find the members of the topics of a batch whose members are not known.

        Return False if the search goes on later: it compares all members for each topic.
        """
        owners = group.owners
        owners.reset(group.in_time, self._topics.removals)
        if 0 not in batch.routes(owners.slot_of_topic, route_count=owners.slot_count):
            return True
        routes = self._router.route_of_topic
        for row in batch.select(owners.slot_of_topic, owners.marks(0)):
            topic = batch.topic_id(row)
            if topic < len(routes) and self._topics.is_live(topic) and not owners.knows(topic):
                route = routes[topic]
                is_read = route < len(wanted) and bool(wanted[route])
                owners.place(topic, name=self._topics.name(topic), is_read=is_read)
                if self._pauses(group):
                    return False
        return True

    def _serve_in_order(self, group: Group, stored: Stored) -> bool:
        """Give new messages of a row group to the members of their topics.

        Stop at the first one whose member has no room.
        """
        ledger, base, owners = group.ledger, stored.base_offset, group.owners
        row = ledger.next_beside(base) - base
        found = self._batch.routes(owners.slot_of_topic, route_count=owners.slot_count)
        slots = [slot for slot in found if slot > 1]  # of members; others have no messages here
        if not slots:
            ledger.pass_over(base + stored.count)
            return True
        while row < stored.count:
            if group.order.first is None or ledger.unacked >= ledger.settings.unacked_max:
                return False
            limit = min(stored.count, row + max(1, GROUP_ORDERED_ROWS_MAX // len(slots)))
            pieces = []
            count = 0
            for slot in slots:
                member = owners.members[slot - 2]
                selected, next_row = self._batch.select_piece(
                    owners.slot_of_topic,
                    owners.marks(slot),
                    first_row=row,
                    last_row=limit,
                    bytes_max=CATCH_UP_PIECE_BYTES,
                )
                room = self._room(group, member, len(selected)) if group.may_get(member) else 0
                if room:
                    room = self._memory_for(group, count + room) - count
                    count += room
                limit = min(limit, selected[room] if room < len(selected) else next_row)
                rows = array("I")
                rows.frombytes(selected[:room].tobytes())
                pieces.append((member, rows))
            if limit == row:
                return False
            for member, rows in pieces:
                while rows and rows[-1] >= limit:
                    rows.pop()
                if rows and not self._send(group, member, base, rows):
                    ledger.put_back(base, rows)  # they wait, so that the others can go on
            row = limit
            ledger.pass_over(base + row)
            if self._pauses(group):
                return False
        return True

    # --- Sending ----------------------------------------------------------------------------------

    def _send(
        self,
        group: Group,
        member: Member,
        base: int,
        rows: "array[int]",
        *,
        failures: int = 0,
    ) -> bool:
        """Send messages to a member; return False if there is no memory to remember them."""
        if not member.hold_memory(len(rows)):
            group.retry_at = self._clock.monotonic() + GROUP_READ_RETRY_SECONDS
            self._timers.after(GROUP_READ_RETRY_SECONDS, lambda: self.wake(group))
            return False
        session = member.session
        protocol = session.encoding.protocol
        left_out = self._counters.messages_undeliverable[protocol]
        first_id = self._encoders.forward_ids.upcoming
        frames = self._encoders.encode(session.encoding, self._batch, memoryview(rows))
        if self._counters.messages_undeliverable[protocol] != left_out and len(rows) > 1:
            # Some cannot be sent in this protocol: find out which.
            self._counters.messages_undeliverable[protocol] = left_out
            for row in rows:
                one = array("I", (row,))
                if not self._send(group, member, base, one, failures=failures):
                    group.ledger.put_back(base, one)
            return True
        if not frames:
            able = [] if group.is_ordered else self._able(group, rows)
            if able:
                self._counters.messages_undeliverable[protocol] = left_out
                return self._send_to_any(group, able, base, rows, failures=failures)
        lease = group.ledger.lease(
            member, base, rows, now=self._clock.monotonic(), failures=failures
        )
        group.turns += 1
        member.turn = group.turns
        if not frames:
            group.ledger.fail(lease, 0, f"{protocol.title} cannot carry it")
            return True
        lease.first_id = first_id
        member.add(lease)
        link = session.link
        if session.mark is not None and session.marks is not None:
            link.write(session.mark(self._places(session.marks, base)))
        link.write(frames)
        if isinstance(link, AcknowledgedLink):
            lease.written = link.written
        self._counters.sent(session, len(rows), len(frames))
        self._sent(member)
        return True

    def _places(self, marks: PositionMarks, base: int) -> bytes:
        """Return the positions of the rows that were encoded last."""
        number = partition_of(base)
        final = not isinstance(self._reader.partitions[number], OwnPartition)
        return marks.places(
            self._batch,
            self._encoders.encoded,
            partition=number,
            first=offset_of(base),
            final=final,
        )

    def _able(self, group: Group, rows: "array[int]") -> list[Member]:
        """Return the members whose protocols can carry a message."""
        undeliverable = self._counters.messages_undeliverable
        carries: dict[Protocol, bool] = {}
        for member in group.members:
            encoding = member.session.encoding
            if encoding.protocol not in carries:
                left_out = undeliverable[encoding.protocol]
                frames = self._encoders.encode(encoding, self._batch, memoryview(rows))
                undeliverable[encoding.protocol] = left_out
                carries[encoding.protocol] = bool(frames)
        return [each for each in group.members if carries[each.session.encoding.protocol]]

    def _send_to_any(
        self, group: Group, able: list[Member], base: int, rows: "array[int]", *, failures: int
    ) -> bool:
        """Send a message to one of some members; if none has room, try again later.

        Return False if there is no memory to remember it.
        """
        ledger, share = group.ledger, group.share
        ready = [each for each in able if each.has_room(share)]
        if ready:
            ready = [each for each in ready if not each.is_late] or ready
            return self._send(group, _least_busy(group, ready), base, rows, failures=failures)
        if not ledger.deferred:  # other members get other messages meanwhile
            self._timers.after(GROUP_READ_RETRY_SECONDS, lambda: self._resume_deferred(group))
        ledger.defer(base + rows[0], failures)
        return True

    def _resume_deferred(self, group: Group) -> None:
        group.ledger.resume_deferred()
        self.wake(group)


def _everything(_: str) -> bool:
    return True


def _least_busy(group: Group, members: list[Member]) -> Member:
    """Return the member with the fewest messages; of several, that whose turn is longest ago."""
    return min(members, key=lambda member: (group.ledger.held_by(member), member.turn))


def _row_group_at(fetched: Fetched, offset: int) -> Stored | None:
    """Return the row group that contains an offset, or the next one; None if there is none."""
    return next((each for each in fetched.groups if offset < each.base_offset + each.count), None)
