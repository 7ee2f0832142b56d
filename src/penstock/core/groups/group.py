"""A consumer group in memory: its members, its messages, and where it reads."""

from array import array
from bisect import bisect_right
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from penstock.core.audiences import RouteMark
from penstock.core.groups.ledger import Lease, Ledger
from penstock.core.sessions import Session
from penstock.limits import GROUP_LEASE_BYTES, GROUP_MESSAGE_BYTES
from penstock.memory import Purpose
from penstock.patterns import covers
from penstock.ports import AcknowledgedLink, Fetched, new_topic_filter

__all__ = ["DEAD_LETTERS", "Group", "Member"]

DEAD_LETTERS: Final = "dead/"
"""Prefix of the topics of dead letters; the name of the group follows."""
_IDS: Final = 0x7FFF_FFFF
"""Ids on the wire wrap around behind this one."""
_LEASES_TRIMMED: Final = 64


class Member:
    """A session in a group. `text` is its subscription as the client wrote it."""

    __slots__ = (
        "_acknowledged",
        "_leases",
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
        self._leases: list[Lease] = []  # in the order of their ids; some have ended

    def has_room(self, share: int) -> bool:
        """Return whether it may get a message, if it may have `share` of them."""
        link = self.session.link
        return (
            not link.congested
            and not link.account.overdrawn
            and self.group.ledger.held_by(self) < share
        )

    def set_late(self, *, is_late: bool) -> None:
        """Note whether it is late. In an ordered group, topics may move to or from it."""
        if is_late != self.is_late:
            group = self.group
            self.is_late = is_late
            if group.is_ordered:
                is_moving = group.in_time != group.owners.members
                group.awaits_move = is_moving and bool(group.ledger.leased)

    def add(self, lease: Lease) -> None:
        """Add messages that were sent to it."""
        lease.first_number = self.delivered + 1
        self.delivered += len(lease)
        self._leases.append(lease)

    def hold_memory(self, added: int = 0) -> bool:
        """Draw the memory of its messages and of `added` ones; return False if there is none."""
        self._trim()
        runs = len(self._leases) + bool(added)
        messages = self.group.ledger.held_by(self) + added
        size = GROUP_LEASE_BYTES * runs + GROUP_MESSAGE_BYTES * messages
        account = self.session.link.account
        others = sum(each.memory for each in self.session.memberships.values() if each is not self)
        return account.hold(Purpose.GROUPS, others + size)

    @property
    def memory(self) -> int:
        """Bytes of its messages, about."""
        held = self.group.ledger.held_by(self)
        return GROUP_LEASE_BYTES * len(self._leases) + GROUP_MESSAGE_BYTES * held

    def _trim(self) -> None:
        leases = self._leases
        ended = 0
        while ended < len(leases) and not leases[ended].left:
            ended += 1
        del leases[:ended]
        if len(leases) > _LEASES_TRIMMED and not leases[len(leases) // 2].left:
            self._leases = [lease for lease in leases if lease.left]

    def by_id(self, identifier: int) -> tuple[Lease, int] | None:
        """Return the message with an id on the wire, None if the member does not have it."""
        leases = self._leases
        if not leases:
            return None
        start = leases[0].first_id
        place = bisect_right(
            leases, (identifier - start) & _IDS, key=lambda lease: (lease.first_id - start) & _IDS
        )
        lease = leases[place - 1]
        index = (identifier - lease.first_id) & _IDS
        return (lease, index) if index < len(lease) and not lease.is_done(index) else None

    def by_number(self, number: int) -> tuple[Lease, int] | None:
        """Return the message with a number, None if the member does not have it."""
        place = bisect_right(self._leases, number, key=lambda lease: lease.first_number)
        if not place:
            return None
        lease = self._leases[place - 1]
        index = number - lease.first_number
        return (lease, index) if index < len(lease) and not lease.is_done(index) else None

    @property
    def first_number(self) -> int | None:
        """The number of the first message that it has; None if it has none."""
        self._trim()
        for lease in self._leases:
            if lease.left:
                return lease.first_number + lease.first_left
        return None

    def take_acknowledged(self, now: float) -> bool:
        """End the leases whose bytes the client's system has acknowledged; return whether any.

        Where a transport cannot tell, those that the own system has taken.
        """
        ledger = self.group.ledger
        link = self.session.link
        acknowledged: int | None = None
        if isinstance(link, AcknowledgedLink):
            acknowledged = link.acknowledged()
        elif link.buffered:
            return False
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
            self._trim()
        return found


class Group:
    """A group that has members, or is being changed."""

    def __init__(self, name: str, pattern: str, ledger: Ledger, *, is_ordered: bool) -> None:
        self.name = name
        self.pattern = pattern
        self.ledger = ledger
        self.is_ordered = is_ordered
        self.mark = RouteMark()
        self.members: dict[Member, None] = {}
        self.topics = new_topic_filter([pattern])
        self.fetched: Fetched | None = None  # the row groups that it was reading last
        self.fetched_from = 0  # the offset that they were read for
        self.is_fetching = False
        self.ahead: Fetched | None = None  # the row groups behind these, if they were read ahead
        self.ahead_from = 0  # the offset that they were read for, or are being read for
        self.is_reading_ahead = False
        self.owner = ""  # the name to which a new group is charged
        self.is_burying = False
        self.redrives = 0  # redrives that are looking up messages of dead letters
        self.leaving = 0  # members that have left while their messages are still taken back
        self.start_us: int | None = None  # where a new one begins, until that is looked up
        self.is_routed = False  # whether its pattern has taken effect
        self.is_saving = False
        self.is_removed = False
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

    def with_room(self) -> list[Member]:
        """Return the members that may get messages: those that are late only if no other may."""
        if self.ledger.leased >= self.ledger.settings.unacked_max:
            return []
        share = self.share
        found = [member for member in self.members if member.has_room(share)]
        return [member for member in found if not member.is_late] or found


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

    def marks(self, *members: Member) -> bytes:
        """Return a mark for the slot of each of these members."""
        marks = bytearray(self.slot_count)
        for member in members:
            marks[self.members.index(member) + 2] = 1
        return bytes(marks)

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
