"""A consumer group in memory: its members, its messages, and where it reads."""

from array import array
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from penstock.core.audiences import RouteMark
from penstock.core.groups.lease_list import LeaseList
from penstock.core.groups.ledger import Lease, Ledger
from penstock.core.groups.ledger_memory import LedgerMemory
from penstock.core.groups.member_order import MemberOrder
from penstock.core.sessions import Session
from penstock.limits import GROUP_LEASE_BYTES, GROUP_MESSAGE_BYTES
from penstock.memory import MemoryBudget, Purpose
from penstock.patterns import covers
from penstock.ports import AcknowledgedLink, Fetched, new_topic_filter

__all__ = ["DEAD_LETTERS", "Group", "Member"]

DEAD_LETTERS: Final = "dead/"
"""Prefix of the topics of dead letters; the name of the group follows."""


class Member:
    """A session in a group. `text` is its subscription as the client wrote it."""

    __slots__ = (
        "_acknowledged",
        "_all_leases",
        "_leases",
        "_memory",
        "answers",
        "delivered",
        "group",
        "is_late",
        "number",
        "session",
        "text",
        "turn",
    )

    def __init__(self, session: Session, group: "Group", text: str, number: int) -> None:
        self.session = session
        self.group = group
        self.text = text
        self.number = number
        """Unique in the group."""
        self.answers = session.encoding.protocol.carries.group_answers
        """Whether the client acknowledges messages; if not, its system does."""
        self.delivered = 0
        """Messages that were sent to it."""
        self.is_late = False
        """Whether messages were taken from it and it has acknowledged none since."""
        self.turn = 0  # of its last messages
        self._acknowledged = 0  # bytes, if its system acknowledges them
        self._memory = 0  # bytes of its messages at the last measurement
        self._leases = LeaseList()
        if session.leases is None:
            session.leases = LeaseList()
        self._all_leases = session.leases

    @property
    def takes_bytes(self) -> bool:
        """Whether the member's link takes more bytes now."""
        link = self.session.link
        return not link.congested and not link.account.overdrawn

    def has_room(self, share: int) -> bool:
        """Return whether it may get a message, if it may have `share` of them."""
        return self.takes_bytes and self.group.ledger.held_by(self) < share

    def set_late(self, *, is_late: bool) -> None:
        """Note whether the member is late. In an ordered group, this may move topics."""
        if is_late != self.is_late and self in self.group.members:
            group = self.group
            self.is_late = is_late
            group.order.add(self)
            if group.is_ordered:
                is_moving = group.in_time != group.owners.members
                group.awaits_move = is_moving and bool(group.ledger.leased)

    def add(self, lease: Lease) -> None:
        """Add messages that were sent to it."""
        lease.first_number = self.delivered + 1
        self.delivered += len(lease)
        self._leases.add(lease)
        if self.answers:
            self._all_leases.trim()
            self._all_leases.add(lease)

    def hold_memory(self, added: int = 0) -> bool:
        """Draw memory for the member's messages and `added` ones; return False if there is none.

        The memory of the session's other groups is measured again after as many calls as there are
        groups.
        """
        self._leases.trim()
        session = self.session
        session.group_memory_age += 1
        if session.group_memory_age >= len(session.memberships):
            session.group_memory_age = 0
            session.group_memory = sum(each.measure() for each in session.memberships.values())
        size = self._size(added)
        total = session.group_memory - self._memory + size
        if not session.link.account.hold(Purpose.GROUPS, total):
            return False
        session.group_memory, self._memory = total, size
        return True

    def measure(self) -> int:
        """Measure the memory of the member's messages; return an estimate in bytes."""
        self._memory = self._size()
        return self._memory

    def release_memory(self) -> None:
        """Release the memory of a member that has left its group."""
        session = self.session
        session.group_memory = session.group_memory - self._memory if session.memberships else 0
        self._memory = 0
        session.link.account.hold(Purpose.GROUPS, session.group_memory)

    def _size(self, added: int = 0) -> int:
        runs = len(self._leases) + bool(added)
        messages = self.group.ledger.held_by(self) + added
        return GROUP_LEASE_BYTES * runs + GROUP_MESSAGE_BYTES * messages

    def by_number(self, number: int) -> tuple[Lease, int] | None:
        """Return the message with a number, None if the member does not have it."""
        return self._leases.by_number(number)

    @property
    def first_number(self) -> int | None:
        """The number of the first message that it has; None if it has none."""
        self._leases.trim()
        for lease in self._leases:
            if lease.left:
                return lease.first_number + lease.first_left
        return None

    def take_acknowledged(self, now: float) -> bool:
        """End the leases whose bytes the client's system has acknowledged; return whether any.

        Where a transport cannot tell, those that the own system has taken.
        """
        link = self.session.link
        if isinstance(link, AcknowledgedLink):
            return self.take(link.acknowledged(), now=now)
        return not link.buffered and self.take(None, now=now)

    def take(self, acknowledged: int | None, *, now: float) -> bool:
        """End the leases up to a number of acknowledged bytes, or all; return whether any ended."""
        ledger = self.group.ledger
        found = False
        for lease in self._leases:
            if lease.left:
                if acknowledged is not None and (lease.written or 0) > acknowledged:
                    if acknowledged > self._acknowledged:  # some of its bytes
                        ledger.acknowledged(lease, now=now)
                    break
                ledger.acknowledged(lease, now=now)
                ledger.all_done(lease)
                found = True
        self._acknowledged = acknowledged or 0
        if found:
            self.set_late(is_late=False)
            self._leases.trim()
        return found


class Group:
    """A group that has members, or is being changed."""

    def __init__(
        self,
        name: str,
        pattern: str,
        ledger: Ledger,
        *,
        is_ordered: bool,
        owner: str,
        budget: MemoryBudget,
    ) -> None:
        """`owner` is charged for the group, its memory and its dead letters."""
        self.name = name
        self.pattern = pattern
        self.ledger = ledger
        self.owner = owner
        self.memory = LedgerMemory(budget, owner or name, ledger)
        self.is_ordered = is_ordered
        self.mark = RouteMark()
        self.members: dict[Member, None] = {}
        self.order = MemberOrder(self)
        self.topics = new_topic_filter([pattern])
        self.fetched: Fetched | None = None  # the row groups that it was reading last
        self.fetched_from = 0  # the offset that they were read for
        self.is_fetching = False
        self.ahead: Fetched | None = None  # the row groups behind these, if they were read ahead
        self.ahead_from = 0  # the offset that they were read for, or are being read for
        self.is_reading_ahead = False
        self.is_burying = False
        self.redrives = 0  # redrives that are looking up messages of dead letters
        self.leaving = 0  # members that have left while their messages are still taken back
        self.start_us: int | None = None  # where a new group begins, until its offsets are known
        self.is_routed = False  # whether its pattern has taken effect
        self.is_saving = False
        self.is_removed = False
        self.awaits_memory = False  # whether a timer tries again to draw memory
        self.awaits_move = False  # whether topics move as soon as no message is leased
        self.retry_at = 0.0  # monotonic time before which nothing is read
        self.retries: dict[int, float] = {}  # and before which a partition is not read
        self.lost = 0  # offsets that were gone, since the state was stored
        self.since: object = None  # what had expired before (LogReader.expiry), which is not lost
        self.saved_changes = -1  # those that the stored state has
        self.joining = 0  # sessions that become members when the state is stored
        self.is_used = False  # whether the stored state says that it has members
        self.stored_at = 0.0  # monotonic time
        self.on_stored: list[Callable[[Exception | None], None]] = []
        self.turns = 0
        self._numbers = 0
        self.reads_dead_letters = covers(pattern, self.dead_topic)
        self.owners = TopicOwners(self)

    @property
    def dead_topic(self) -> str:
        """The topic of its dead letters."""
        return DEAD_LETTERS + self.name

    def next_number(self) -> int:
        """Return a number for a new member."""
        self._numbers += 1
        return self._numbers

    @property
    def share(self) -> int:
        """The messages that one member may have."""
        return max(1, self.ledger.settings.unacked_max // max(1, len(self.members)))

    @property
    def in_time(self) -> list[Member]:
        """The members that are not late; all of them if there is no other."""
        return [member for member in self.members if not member.is_late] or list(self.members)

    def add(self, member: Member) -> None:
        """Add a member."""
        self.members[member] = None
        self.order.add(member)

    def remove(self, member: Member) -> None:
        """Remove a member, if it is in the group."""
        self.members.pop(member, None)
        self.order.remove(member)

    def may_get(self, member: Member) -> bool:
        """Return whether a member may get messages; late members only if no other may."""
        if self.ledger.leased >= self.ledger.settings.unacked_max:
            return False
        if not member.takes_bytes:
            self.order.block(member)
            return False
        is_next = not member.is_late or self.order.first_in_time is None
        return is_next and member.has_room(self.share)


class TopicOwners:
    """The member that gets the messages of a topic, in an ordered group.

    The member is chosen by a hash of its number and the topic, so that a member that leaves moves
    only its own topics. A topic's slot is found once, and forgotten when members or topics change.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self.slot_of_topic = array("I")  # 0 is unknown, 1 not read, then the members
        self.members: list[Member] = []
        self._removals = 0

    def reset(self, members: list[Member], removals: int) -> None:
        """Start again if members have changed, or topics were removed."""
        if members != self.members or removals != self._removals:
            self.members = members
            self._removals = removals
            self.slot_of_topic = array("I")

    @property
    def slot_count(self) -> int:
        """One more than the highest slot."""
        return len(self.members) + 2

    def marks(self, slot: int) -> bytes:
        """Return one mark for each slot; only that of `slot` is set."""
        marks = bytearray(self.slot_count)
        marks[slot] = 1
        return bytes(marks)

    def knows(self, topic: int) -> bool:
        """Return whether the slot of a topic is set."""
        return topic < len(self.slot_of_topic) and bool(self.slot_of_topic[topic])

    def place(self, topic: int, *, name: str, is_read: bool) -> None:
        """Set the slot of a topic."""
        slots = self.slot_of_topic
        if topic >= len(slots):
            slots.frombytes(bytes(slots.itemsize * (topic + 1 - len(slots))))
        slots[topic] = 1 + self._slot(name) if is_read else 1

    def _slot(self, name: str) -> int:
        hashes = [hash_of(name, member.number) for member in self.members]
        return 1 + hashes.index(max(hashes))

    def owner(self, topic: int) -> Member | None:
        """Return the member that gets the messages of a topic whose slot is set."""
        slot = self.slot_of_topic[topic]
        return self.members[slot - 2] if slot > 1 else None


def hash_of(name: str, number: int) -> bytes:
    """Return a hash of a topic and a member, the same in every process."""
    return blake2b(b"%d/%b" % (number, name.encode()), digest_size=8).digest()
