"""All consumer groups of a broker that have members or are being changed.

    subscribe ──▶ open (load the state) ──▶ join ──▶ GroupDelivery ──▶ members
                                                          │
    answers, acknowledged bytes ──▶ Ledger ──▶ save ◀─────┘

A group is in memory while it has members. Its state is stored GROUP_SWEEP_SECONDS after a change at
the latest; a message that was acknowledged after the last store is delivered again if the broker is
killed.

Of several nodes, one has all members of a group, and reads all partitions for them. It says so in
the state, which it stores every GROUP_OWNER_SECONDS at least; the store tells other nodes of it. A
node that finds that another one has taken the group over disconnects its members.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from penstock._kernels.topics import TopicTable
from penstock.core.counters import Counters
from penstock.core.encoders import Encoders
from penstock.core.groups.acknowledgments import Acknowledgments
from penstock.core.groups.dead_letters import DeadLetters
from penstock.core.groups.delivery import GroupDelivery
from penstock.core.groups.group import Group, Member
from penstock.core.groups.ledger import GroupSettings, Ledger
from penstock.core.groups.places import PlacedReader, place_of
from penstock.core.groups.redrives import Redriven, Redrives
from penstock.core.groups.repeated_events import RepeatedEvents
from penstock.core.groups.snapshots import Snapshot
from penstock.core.partitions import Partition
from penstock.core.quotas import Quota, Reached
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.errors import (
    GroupDamaged,
    GroupDiffers,
    GroupElsewhere,
    LogError,
    LogUnavailable,
    MemoryExhausted,
    NoSuchGroup,
    OffsetPastEnd,
    PenstockError,
    TierUnavailable,
)
from penstock.limits import (
    GROUP_OWNER_SECONDS,
    GROUP_READ_RETRY_SECONDS,
    GROUP_SWEEP_SECONDS,
    GROUPS_OPENED_MAX,
)
from penstock.memory import MemoryBudget
from penstock.ports import (
    AcknowledgedLink,
    Clock,
    GroupState,
    GroupStore,
    Record,
    Subscription,
)
from penstock.replay import Ago, AtOffset, AtOffsets, AtTime, Earliest, GroupPlace, Start

__all__ = ["GroupFigures", "Groups"]

log = structlog.get_logger("penstock.groups")


class GroupFigures(NamedTuple):
    """The state of a group that is in memory."""

    members: int
    unacknowledged: int
    positions: Mapping[int, int]
    """The first offset of each partition that is not done."""


class Groups:
    """Opens, joins, leaves and stores groups. One thread owns it."""

    def __init__(
        self,
        *,
        store: GroupStore,
        node: int,
        partitions: Mapping[int, Partition],
        topics: TopicTable,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        clock: Clock,
        timers: Timers,
        slices: Slices,
        memory: MemoryBudget,
        publish: Callable[[Record, Callable[[bool], None]], None],
        quota_of: Callable[[str], Quota | None],
        quota_reached: Reached,
        settings: GroupSettings,
        settings_by_name: Mapping[str, GroupSettings],
    ) -> None:
        """`node` is the partition that this process writes, `partitions` are all of the log."""
        self._store = store
        self._node = node
        self._reader = reader = PlacedReader(partitions)
        self._router = router
        self._clock = clock
        self._timers = timers
        self._memory = memory
        self._settings = settings
        self._settings_by_name = settings_by_name
        self._groups: dict[str, Group] = {}
        self._opened: dict[str, GroupState | Exception | None] = {}  # loaded, not joined yet
        self._dirty: dict[Group, None] = {}
        self._slices = slices
        self._sweeps = False  # whether a sweep is planned, or runs
        self._sweeps_again = False  # whether another one follows
        self._late = RepeatedEvents("group member late", timers)
        self._damaged = RepeatedEvents("group damaged", timers)
        self.later: Callable[[float, Callable[[], None]], object] = timers.after
        """Calls a function after some seconds; the server sets a more exact one."""
        self._delivery = GroupDelivery(
            reader=reader,
            topics=topics,
            router=router,
            encoders=encoders,
            counters=counters,
            clock=clock,
            timers=timers,
            slices=slices,
            changed=self._changed,
            blocked=self._start_sweeper,
            sent=self._sent,
        )
        self._dead_letters = DeadLetters(
            reader=reader,
            topics=topics,
            clock=clock,
            timers=timers,
            publish=publish,
            quota_of=quota_of,
            quota_reached=quota_reached,
            changed=self._buried,
        )
        self._redrives = Redrives(reader=reader, topics=topics, slices=slices)
        self.acknowledgments = Acknowledgments(
            wake=self._delivery.wake,
            bury=self._dead_letters.bury,
            changed=self._changed,
            clock=clock,
            later=self._call_later,
        )

    def __contains__(self, name: str) -> bool:
        """Return whether a group is in memory; any thread may call."""
        return name in self._groups

    # --- Opening ----------------------------------------------------------------------------------

    def open(self, name: str, then: Callable[[], None]) -> None:
        """Load the state of a group, for `join` or another call that follows in `then`."""
        if name in self._groups:
            then()
            return

        def loaded(found: GroupState | Exception | None) -> None:
            self._opened.pop(name, None)
            if len(self._opened) >= GROUPS_OPENED_MAX:
                del self._opened[next(iter(self._opened))]
            self._opened[name] = found
            if isinstance(found, GroupDamaged):
                self._damaged.warn(name, error=found.reason)
            then()

        self._store.load(name, loaded)

    def _known(self, name: str) -> GroupState | None:
        """Return the state of a group that was opened; raise GroupDamaged or LogUnavailable."""
        found = self._opened.get(name, LogUnavailable("the group was not opened"))
        if isinstance(found, GroupDamaged):
            raise found
        if isinstance(found, Exception):
            raise LogUnavailable(f"the state of group {name} cannot be read") from found
        return found

    def _group(
        self, name: str, state: GroupState, pattern: str, *, is_ordered: bool, owner: str
    ) -> Group:
        """Return a group in memory with a stored state; raise MemoryExhausted."""
        progress = state.progress
        at = state.offsets if progress is None else progress.partitions or {0: progress.next}
        ledger = Ledger(
            *(place_of(number, offset) for number, offset in at.items()),
            settings=self._settings_by_name.get(name, self._settings),
            pending=() if progress is None else progress.pending,
            dead=() if progress is None else progress.dead,
        )
        budget = self._memory
        group = Group(name, pattern, ledger, is_ordered=is_ordered, owner=owner, budget=budget)
        if not group.memory.fit():
            raise MemoryExhausted("principal")
        return group

    # --- Members ----------------------------------------------------------------------------------

    def check(self, pattern: str, place: GroupPlace) -> None:
        """Raise an error if a member cannot join; the group is open.

        It is GroupDiffers, GroupElsewhere, GroupDamaged or LogUnavailable.
        """
        group = self._groups.get(place.name)
        if group is not None:
            known, is_ordered = group.pattern, group.is_ordered
        else:
            state = self._known(place.name)
            if state is None or state.subscription is None:
                return
            patterns = state.subscription.patterns or state.subscription.topics or ()
            if state.subscription.expression is not None or len(patterns) != 1:
                raise GroupDiffers(place.name, "is one of a reader of tables")
            known = patterns[0]
            is_ordered = bool(state.progress and state.progress.ordered)
            if state.progress is not None and state.progress.used:
                self._check_node(place.name, state.progress.node)
        if known != pattern:
            raise GroupDiffers(place.name, f"reads {known[:200]}")
        if place.is_ordered and not is_ordered:
            raise GroupDiffers(place.name, "was made without ordered=topic")

    def _check_node(self, name: str, node: int) -> None:
        """Raise GroupElsewhere if another node has the members of a group."""
        if node not in (-1, self._node):
            raise GroupElsewhere(name, node)

    def join(
        self, session: Session, pattern: str, place: GroupPlace, then: Callable[[], None]
    ) -> None:
        """Make a session a member; call `then` when the group is stored, before its first message.

        A new group is stored when the time at which it begins is looked up. If it cannot be stored,
        `then` is called too, and the session is no member.
        The group is open and `check` has passed. Raise InvalidPattern, TooManyPatternShapes, or
        MemoryExhausted if there is no memory for the group's messages.
        """
        known = self._groups.get(place.name)
        group = known or self._start(session, pattern, place)
        try:
            self._follow(group)
        except PenstockError:
            if known is None:
                group.memory.release()
            raise
        self._groups[place.name] = group
        member = Member(session, group, pattern, group.next_number())
        session.memberships[place.name] = member

        group.joining += 1

        def stored(error: Exception | None) -> None:
            group.joining -= 1
            if session.memberships.get(place.name) is not member:
                return  # it has left meanwhile
            if error is not None or group.is_removed:
                del session.memberships[place.name]
                then()
                return
            group.add(member)
            group.awaits_move = group.is_ordered and bool(group.ledger.leased)
            if self._store.is_shared:
                self._start_sweeper()  # it stores the state again, also if there are no messages
            then()
            self.later(0.0, begin)

        def begin() -> None:  # the answer to the subscription comes first
            self._delivery.wake(group)
            self._dead_letters.bury(group)

        # A state that is being stored may say that the group has no members.
        is_seen = not self._store.is_shared or (group.is_used and not group.is_saving)
        if group.saved_changes < 0 or not is_seen:
            group.on_stored.append(stored)
            if not group.is_saving:
                self._save(group)
        else:
            stored(None)
        if known is None and group.start_us is not None:
            self._look_up(group, group.start_us)

    def _start(self, session: Session, pattern: str, place: GroupPlace) -> Group:
        """Bring a group into memory, with the state it was stored with or a new one."""
        name = place.name
        state = self._known(name)
        is_ordered = place.is_ordered
        if state is not None and state.progress is not None:
            is_ordered = state.progress.ordered
        start = place.start
        if state is None or not state.offsets:
            numbers = self._reader.partitions
            offsets = {number: self._first(start, pattern, number) for number in numbers}
            state = GroupState(name, offsets)
        else:
            start = None  # a group that exists goes on
        is_new = state.progress is None
        owner = state.owner or session.topic_owner
        group = self._group(name, state, pattern, is_ordered=is_ordered, owner=owner)
        group.since = self._reader.partitions[self._node].reader.expiry if is_new else None
        if isinstance(start, Ago | AtTime):
            now_us = self._clock.now_us()
            us = max(start.us if isinstance(start, AtTime) else now_us - start.us, 0)
            group.start_us = us if us <= now_us else None
        return group

    def _first(self, start: Start | None, pattern: str, number: int) -> int:
        """Return the offset of a partition at which a new group begins.

        A time is looked up afterwards.
        """
        partition = self._reader.partitions[number]
        horizon = partition.reader.horizon
        match start:
            case Earliest():
                return min(partition.reader.horizon_of(pattern), partition.next_offset)
            case AtOffset(offset) if number == self._node:
                return max(offset, horizon)
            case AtOffsets(offsets):
                return max(offsets.get(number, 0), horizon)
            case _:
                return partition.next_offset

    def _look_up(self, group: Group, timestamp_us: int) -> None:
        places: list[int] = []
        partitions = dict(self._reader.partitions)

        def find(number: int) -> None:
            if not group.is_removed and group.start_us is not None:
                partitions[number].reader.find_time(timestamp_us, partial(found, number))

        def found(number: int, offset: int | LogError) -> None:
            if isinstance(offset, OffsetPastEnd | TierUnavailable):  # it is not known yet
                self._timers.after(GROUP_READ_RETRY_SECONDS, lambda: find(number))
                return
            if isinstance(offset, LogError):  # too many messages are better than too few
                log.warning("time not found", group=group.name, error=str(offset))
                place = self._reader.horizon(number)
            else:
                place = place_of(number, offset)
            places.append(min(place, group.ledger.next_beside(place)))
            if len(places) == len(partitions) and group.start_us is not None:  # it was not reset
                group.start_us = None
                group.ledger.reset(*places)
                self._save(group)
                self._delivery.wake(group)

        for number in partitions:
            find(number)

    def _follow(self, group: Group) -> None:
        """Route the topics of a group, once; raise InvalidPattern or TooManyPatternShapes."""

        def routed() -> None:
            group.is_routed = True
            self._delivery.wake(group)

        self._router.subscribe(group.mark, group.pattern, routed)
        if group.reads_dead_letters and group.pattern != group.dead_topic:
            self._router.subscribe(group.mark, group.dead_topic)

    def leave(self, member: Member) -> None:
        """End a membership; what the member has not acknowledged goes to others."""
        self._leave([member], is_lost=False)

    def forget(self, session: Session) -> None:
        """End all memberships of a session; its members are lost unless the broker ended it.

        A lost member may have failed at its first unacknowledged message. This does not apply if
        the client's operating system acknowledges: such a member never got its unacknowledged ones.
        """
        is_lost = not (session.is_ended or self._delivery.is_stopped)
        self._leave(list(session.memberships.values()), is_lost=is_lost)

    def _leave(self, members: Sequence[Member], *, is_lost: bool) -> None:
        """End the memberships at once, and take back the messages of the members in slices."""
        for member in members:
            session, group = member.session, member.group
            session.memberships.pop(group.name, None)
            self.acknowledgments.forget(member)
            if not member.answers and member in group.members:
                member.take_acknowledged(self._clock.monotonic())
            group.remove(member)
            group.leaving += 1
            member.release_memory()
        self._slices.start(self._take_back(members, is_lost=is_lost))

    def _take_back(self, members: Sequence[Member], *, is_lost: bool) -> Iterator[None]:
        for member in members:
            group = member.group
            yield from group.ledger.leaving(member, is_lost=is_lost and member.answers)
            group.leaving -= 1
            self._changed(group)
            self._delivery.wake(group)
            self._dead_letters.bury(group)
            yield

    # --- Events -----------------------------------------------------------------------------------

    def drained(self, session: Session) -> None:
        """Go on with a session whose link is no longer congested."""
        for member in session.memberships.values():
            member.group.order.unblock(member)
            self._delivery.wake(member.group)

    def stop_delivery(self) -> None:
        """Deliver nothing more: all members are about to be disconnected.

        Without this, the messages of the first member to leave would go to a member that leaves
        next. Members that leave from now on do not count as lost.
        """
        self._delivery.is_stopped = True
        self._late.flush()
        self._damaged.flush()
        self._dead_letters.dead.flush()
        self._dead_letters.waiting.flush()
        self._delivery.without_memory.flush()

    def settled(self) -> None:
        """Go on with groups that waited for the log."""
        self._delivery.settled()

    def _call_later(self, seconds: float, then: Callable[[], None]) -> None:
        self.later(seconds, then)

    def _sent(self, member: Member) -> None:
        self.acknowledgments.sent(member)
        self._start_sweeper()

    # --- Time and states --------------------------------------------------------------------------

    def _changed(self, group: Group) -> None:
        """Store a group soon, and remove it from memory if it has no members."""
        if not group.is_removed:
            self._dirty[group] = None
            self._start_sweeper()

    def _buried(self, group: Group) -> None:
        """Go on with a group whose dead letter was written: there is room for another message."""
        self._changed(group)
        self._delivery.wake(group)

    def _start_sweeper(self) -> None:
        self._sweeps_again = True
        if not self._sweeps:
            self._sweeps = True
            self._timers.after(GROUP_SWEEP_SECONDS, lambda: self._slices.start(self._sweep()))

    def _sweep(self) -> Iterator[None]:
        """Take messages from members whose time is over, and store what has changed."""
        self._sweeps_again = False
        try:
            now = self._clock.monotonic()
            for group in list(self._groups.values()):
                if not group.is_removed:
                    yield from self._sweep_group(group, now)
            if self._store.is_shared:
                self._tell_of_members(now)
            for group in list(self._dirty):
                if group in self._dirty:
                    self._save(group)
                    yield
        finally:
            self._sweeps = False
            if self._sweeps_again:
                self._start_sweeper()

    def _sweep_group(self, group: Group, now: float) -> Iterator[None]:
        order = group.order
        late: dict[Member, None] = {}
        for member in group.ledger.expiring(now):
            if isinstance(member, Member):
                late[member] = None
                member.set_late(is_late=True)
            yield
        for member in list(order.late):
            if member not in late and not member.answers and _reads(member):
                self.acknowledgments.is_in_time(member)
                yield
        if late:
            self._late.warn(group.name, members=len(late))
            self._changed(group)
        opened = [member for member in order.blocked if member.takes_bytes]
        for member in opened:
            order.unblock(member)
        if late or opened:
            self._delivery.wake(group)
        self._dead_letters.bury(group)
        yield
        if group.ledger.leased or order.late or order.blocked:
            self._start_sweeper()

    def _tell_of_members(self, now: float) -> None:
        """Store groups with members from time to time: other nodes see that this one has them."""
        for group in self._groups.values():
            if group.members:
                self._start_sweeper()
                if now >= group.stored_at + GROUP_OWNER_SECONDS:
                    self._dirty[group] = None

    def _save(
        self, group: Group, then: Callable[[Exception | None], None] = lambda _: None
    ) -> None:
        """Store a group; call `then` when it is stored, or with what went wrong.

        Release it if nothing uses it. A group that does not know yet where it begins is stored
        later: after a restart, it would begin elsewhere.
        """
        if group.is_removed:
            self._refuse(group, then)
            return
        if group.start_us is not None:
            self._dirty.pop(group, None)
            group.on_stored.append(then)
            return
        if group.is_saving:
            self._dirty[group] = None
            self._start_sweeper()
            return
        self._dirty.pop(group, None)
        group.memory.fit()
        ledger, lost = group.ledger, group.lost
        changes = ledger.changes
        is_used = self._store.is_shared and bool(group.members or group.joining)
        is_due = is_used and self._clock.monotonic() >= group.stored_at + GROUP_OWNER_SECONDS
        is_stored = changes == group.saved_changes and is_used == group.is_used
        if is_stored and not lost and not is_due:
            then(None)
            self._release(group)
            return
        group.is_saving = True
        group.lost = 0

        def saved(error: Exception | None) -> None:
            group.is_saving = False
            if group.is_removed:
                self._refuse(group, then)
                return
            if error is None:
                group.saved_changes = changes
                group.is_used = is_used
                group.stored_at = self._clock.monotonic()
            elif isinstance(error, GroupElsewhere):
                self._give_up(group, error)
            else:
                log.warning("group not stored", group=group.name, error=str(error))
                group.lost += lost
                self._changed(group)
            if error is None and group.joining and is_used < self._store.is_shared:
                self._save(group)  # the first member came meanwhile
                return
            waiting, group.on_stored = group.on_stored, []
            for each in waiting:
                each(error)
            then(error)
            if error is None:
                self._release(group)
            elif not group.members and group.saved_changes < 0:
                self._remove(group)  # it was never stored, and no client uses it

        self._slices.start(self._store_copy(group, lost, saved, is_used=is_used))

    def _store_copy(
        self, group: Group, lost: int, then: Callable[[Exception | None], None], *, is_used: bool
    ) -> Iterator[None]:
        """Store the state that a group has now; it may change meanwhile."""
        snapshot = group.ledger.snapshot()
        yield from snapshot.build()
        if group.is_removed:  # else the removed group would be stored again
            then(NoSuchGroup(group.name))
        else:
            self._store.save(self._state(group, snapshot, lost, is_used=is_used), then)

    def _refuse(self, group: Group, then: Callable[[Exception | None], None]) -> None:
        """Call all callbacks that wait for a group to be stored, because it was removed."""
        waiting, group.on_stored = group.on_stored, []
        for each in (*waiting, then):
            each(NoSuchGroup(group.name))

    def _give_up(self, group: Group, error: GroupElsewhere) -> None:
        """Leave a group to another node: members are disconnected, so that they go there."""
        log.warning("group taken over", group=group.name, node=error.node)
        for session in self._dismiss(group):
            session.end()

    def _save_behind(self, group: Group, then: Callable[[Exception | None], None]) -> None:
        """Store a group again, behind a store that is under way."""
        group.on_stored.append(lambda _: self._save(group, then))

    def _state(self, group: Group, snapshot: Snapshot, lost: int, *, is_used: bool) -> GroupState:
        """Return what is stored of a group.

        A new group begins behind messages that may not be in the log yet. If they are never
        committed, the next process of this node assigns their offsets to other messages.
        """
        positions = dict(snapshot.positions)
        progress = snapshot.progress(is_ordered=group.is_ordered, is_used=is_used)
        node = self._node
        end = self._reader.partitions[node].reader.end
        if self._store.is_shared and positions.get(node, 0) > end:
            positions[node] = end
            if progress.partitions:
                changed = progress.partitions | {node: min(progress.partitions[node], end)}
                progress = msgspec.structs.replace(progress, partitions=changed)
            else:
                progress = msgspec.structs.replace(progress, next=min(progress.next, end))
        return GroupState(
            group.name,
            positions,
            lost=lost,
            subscription=Subscription(patterns=(group.pattern,)),
            progress=progress,
            owner=group.owner,
        )

    def _release(self, group: Group) -> None:
        """Remove a stored group from memory if it has no members and nothing else to do."""
        ledger = group.ledger
        if (
            not group.members
            and group.start_us is None
            and not group.is_burying
            and not group.redrives
            and not group.leaving
            and not group.on_stored
            and group.saved_changes == ledger.changes
            and not group.is_used
            and self._groups.get(group.name) is group
        ):
            self._remove(group)

    def _remove(self, group: Group) -> None:
        group.is_removed = True
        self._groups.pop(group.name, None)
        self._dirty.pop(group, None)
        self._delivery.forget(group)
        self._router.leave(group.mark)
        group.memory.release()

    def flush(self, then: Callable[[], None]) -> None:
        """Store all changed groups; call `then` when they are stored."""
        groups = list(self._groups.values())
        left = len(groups) + 1

        def stored(_: Exception | None = None) -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for group in groups:
            for member in group.members:
                if not member.answers:
                    member.take_acknowledged(self._clock.monotonic())
            if group.start_us is not None:  # its first subscription was not confirmed
                stored()
            elif group.is_saving:
                self._save_behind(group, stored)
            else:
                self._save(group, stored)
        stored()

    # --- Administration ---------------------------------------------------------------------------

    def figures(self, name: str) -> GroupFigures | None:
        """Return the figures of a group, None if it is not in memory."""
        group = self._groups.get(name)
        if group is None:
            return None
        return GroupFigures(len(group.members), group.ledger.unacked, group.ledger.positions)

    def members(self, name: str) -> list[tuple[Session, int]]:
        """Return the members of a group, each with the number of its messages."""
        group = self._groups.get(name)
        members = () if group is None else group.members
        return [(member.session, member.group.ledger.held_by(member)) for member in members]

    def _change(self, name: str) -> Group:
        """Return a group that is open, in memory; raise an error as `redrive` does."""
        group = self._groups.get(name)
        if group is None:
            state = self._known(name)
            if state is None:
                raise NoSuchGroup(name)
            patterns = state.subscription.patterns if state.subscription is not None else None
            if state.progress is None or not patterns:
                raise GroupDiffers(name, "is one of a reader of tables, which keeps its own place")
            if state.progress.used:
                self._check_node(name, state.progress.node)
            is_ordered = state.progress.ordered
            group = self._group(name, state, patterns[0], is_ordered=is_ordered, owner=state.owner)
            self._groups[name] = group
        return group

    def reset(
        self, name: str, offsets: Mapping[int, int], then: Callable[[Exception | None], None]
    ) -> Mapping[int, int]:
        """Let a group that is open go on at an offset of each partition; others keep theirs.

        Return where it goes on: not before the first message of a partition, nor behind the last.
        Call `then` when that is stored, or not. Raise NoSuchGroup, GroupDiffers, GroupElsewhere,
        GroupDamaged, MemoryExhausted or LogUnavailable.
        """
        group = self._change(name)
        group.start_us = None
        reader = self._reader
        group.ledger.reset(
            *(
                min(max(place_of(number, offset), reader.horizon(number)), reader.next(number))
                for number, offset in offsets.items()
                if number in reader.partitions
            )
        )
        positions = group.ledger.positions
        self._store_change(group, then)
        return positions

    def redrive(self, name: str, then: Callable[[Redriven | Exception], None]) -> None:
        """Deliver the dead letters of a group that is open again, those that are in the log.

        Call `then` when that is stored, or not. Raise NoSuchGroup, GroupDiffers, GroupElsewhere,
        GroupDamaged, MemoryExhausted or LogUnavailable.
        """
        group = self._change(name)

        def looked_up(result: Redriven | Exception) -> None:
            if isinstance(result, Exception):
                then(result)
                self._changed(group)
            else:
                self._store_change(group, lambda error: then(error or result))

        self._redrives.start(group, looked_up)

    def _store_change(self, group: Group, then: Callable[[Exception | None], None]) -> None:
        self._save_now(group, then)
        self._delivery.wake(group)

    def _save_now(self, group: Group, then: Callable[[Exception | None], None]) -> None:
        """Store a group, behind a store that is under way."""
        if group.is_saving:
            self._timers.after(GROUP_SWEEP_SECONDS, lambda: self._save_now(group, then))
        else:
            group.saved_changes = -1
            self._save(group, then)

    def remove(self, name: str, then: Callable[[Exception | None], None]) -> list[Session]:
        """Remove a group that is open, and its state; return the sessions that were its members.

        Raise NoSuchGroup, GroupElsewhere or LogUnavailable.
        """
        group = self._groups.get(name)
        if group is None and not isinstance(self._opened.get(name), GroupDamaged):
            state = self._known(name)
            if state is None:
                raise NoSuchGroup(name)
            if state.progress is not None and state.progress.used:
                self._check_node(name, state.progress.node)
        sessions = [] if group is None else self._dismiss(group)
        self._store.forget(name, then)
        return sessions

    def _dismiss(self, group: Group) -> list[Session]:
        """Remove a group from memory, and its members; return their sessions."""
        sessions = []
        for member in list(group.members):
            sessions.append(member.session)
            member.session.memberships.pop(group.name, None)
            member.release_memory()
            self.acknowledgments.forget(member)
        group.ledger.reset()
        self._remove(group)
        return sessions


def _reads(member: Member) -> bool:
    """Return whether a client without answers has taken all that it was sent."""
    link = member.session.link
    if isinstance(link, AcknowledgedLink):
        return link.acknowledged() >= link.written
    return not link.buffered
