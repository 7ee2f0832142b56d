"""Sessions: the connected clients, and their numbers."""

import ipaddress
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock._kernels.batch import Sender
from penstock.core.access import Principal
from penstock.core.answers import Answers
from penstock.core.audiences import Encoding
from penstock.core.feeds import Feed, Subscriptions
from penstock.core.timers import Timer
from penstock.limits import SESSION_NUMBERS_BLOCK
from penstock.ports import Link

if TYPE_CHECKING:
    from penstock.core.groups.group import Member
    from penstock.core.groups.lease_list import LeaseList
    from penstock.core.position_marks import PositionMarks

__all__ = ["NUMBER_MIN", "Session", "Sessions", "node_numbers", "node_of", "topic_owner"]

NUMBER_MIN = 1000
NUMBER_MAX = 4_294_967_294
"""fleximq 4.1.1: the ids that a broker may assign. Other protocols use the same range."""
NUMBERS: Final = range(NUMBER_MIN, NUMBER_MAX + 1)
NODE_NUMBERS: Final = 1 << 20
"""Numbers of each node: the 12 bits of the node are the highest of a number."""


class Session:
    """One connected client, from its handshake until it disconnects.

    `subscriptions` are patterns without their start position. While the session is served from the
    log, `feeds` holds its progress in each partition.
    """

    __slots__ = (
        "answers",
        "bytes_received",
        "bytes_sent",
        "checked_rights",
        "dropped",
        "echo",
        "encoding",
        "farewell",
        "feeds",
        "group_memory",
        "group_memory_age",
        "held_publishers",
        "hold_timer",
        "is_ended",
        "leases",
        "link",
        "mark",
        "marks",
        "memberships",
        "messages_received",
        "messages_sent",
        "name",
        "number",
        "opened_at",
        "principal",
        "sender",
        "since_us",
        "slow",
        "subscription_bytes",
        "subscriptions",
        "topic_owner",
    )

    def __init__(
        self,
        number: int,
        *,
        encoding: Encoding,
        link: Link,
        name: str,
        principal: Principal,
        echo: bool = True,
        opened_at: int = 0,
        since_us: int = 0,
    ) -> None:
        self.number = number
        self.encoding = encoding
        self.link = link
        self.name = name
        self.principal = principal
        self.checked_rights: object = principal.rights
        """The rights of the principal, by which all subscriptions were checked."""
        self.topic_owner = topic_owner(principal, link.peer)
        self.echo = echo
        self.opened_at = opened_at  # the log's next offset when it was opened
        self.since_us = since_us  # microseconds since the epoch
        self.messages_received = 0
        self.bytes_received = 0
        self.messages_sent = 0
        self.bytes_sent = 0
        self.sender = Sender(sender_uuid(number), number)
        self.subscriptions: Subscriptions = {}
        self.subscription_bytes = 0  # of their patterns, in UTF-8
        self.feeds: dict[int, Feed] = {}
        self.memberships: dict[str, Member] = {}  # by the name of the consumer group
        self.leases: LeaseList | None = None  # the messages of all of these, if it answers by id
        self.group_memory = 0  # bytes that the messages of these take
        self.group_memory_age = 0  # runs that were given out since all of them were measured
        self.dropped = 0
        self.held_publishers: dict[Session, None] = {}  # paused until this session catches up
        self.hold_timer: Timer | None = None  # when they are resumed at the latest
        self.slow = False  # the hold timed out: no publisher is paused for it any more
        self.answers = Answers(link)
        self.mark: Callable[[bytes], bytes] | None = None
        """Frames positions for a client that asked for them, see `core.position_marks`."""
        self.marks: PositionMarks | None = None
        """Encodes these positions."""
        self.is_ended = False
        """Whether the broker ended the connection, not the client or the network."""
        self.farewell = b""  # tells the client that the broker ends the connection

    @property
    def subscribed(self) -> list[str]:
        """Its subscriptions, and its consumer groups as a client writes them, for lists."""
        groups = [f"{each.text}@group={name}" for name, each in self.memberships.items()]
        return [*self.subscriptions, *groups]

    def reply(self, data: bytes) -> None:
        """Send an answer after all answers that wait for the log."""
        self.answers.send(data)

    def say_farewell(self) -> None:
        """Tell the client, once, that the broker ends the connection, if its protocol can."""
        farewell, self.farewell = self.farewell, b""
        if farewell:
            self.answers.send(farewell)

    def end(self) -> None:
        """Close the link on the broker's own account."""
        self.is_ended = True
        self.say_farewell()
        self.link.close()

    def finish(self) -> None:
        """Close the link after the last answer, including those that wait for the log."""
        self.answers.finish()


class Sessions:
    """All sessions by number. Numbers are not reused until the counter wraps.

    With `continue_from` that holds across restarts: numbers are reserved in blocks, ahead of use.
    `numbers` are those that this process may assign; set it before the first session.
    """

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._by_number: dict[int, Session] = {}
        self._numbers = NUMBERS
        self._next = NUMBER_MIN
        self._reserve: Callable[[int], None] | None = None
        self._unreserved = SESSION_NUMBERS_BLOCK  # numbers to assign before more are reserved

    @property
    def numbers(self) -> range:
        """The numbers that this process may assign."""
        return self._numbers

    @numbers.setter
    def numbers(self, numbers: range) -> None:
        self._numbers = numbers
        self._next = numbers[0]

    def continue_from(self, first: int, reserve: Callable[[int], None]) -> None:
        """Assign numbers from `first` on, and reserve more while the block is in use.

        `reserve` gets the number at which a later run of the broker starts. The next
        SESSION_NUMBERS_BLOCK numbers are reserved already.
        """
        self._next = first if first in self._numbers else self._numbers[0]
        self._reserve = reserve
        self._unreserved = SESSION_NUMBERS_BLOCK // 2

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Session]:
        """Iterate over a copy: sessions may open and close meanwhile."""
        return iter(list(self._by_number.values()))

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._by_number) >= self._sessions_max

    def get(self, number: int) -> Session | None:
        """Return the session with a number, None if there is none."""
        return self._by_number.get(number)

    def next_number(self) -> int:
        """Return an unused number."""
        while True:
            number = self._next
            self._next = self.after(number, 1)
            self._unreserved -= 1
            if not self._unreserved:
                self._unreserved = SESSION_NUMBERS_BLOCK
                if self._reserve is not None:
                    self._reserve(self.after(number, SESSION_NUMBERS_BLOCK * 3 // 2))
            if number not in self._by_number:
                return number

    def after(self, number: int, count: int) -> int:
        """Return the number that follows `number` by `count`; the last is followed by the first."""
        first = self._numbers[0]
        return first + (number - first + count) % len(self._numbers)

    def add(self, session: Session) -> None:
        """Add a session."""
        self._by_number[session.number] = session

    def remove(self, session: Session) -> None:
        """Remove a session, if it is there."""
        self._by_number.pop(session.number, None)


def node_numbers(node: int) -> range:
    """Return the numbers that a node may assign: those of different nodes differ."""
    first = node * NODE_NUMBERS
    return range(max(first, NUMBER_MIN), min(first + NODE_NUMBERS, NUMBER_MAX + 1))


def node_of(number: int) -> int:
    """Return the node that has assigned a number."""
    return number // NODE_NUMBERS


def topic_owner(principal: Principal, peer: str) -> str:
    """Return the name to which topics that a client creates are charged.

    It is the principal's name, or the address of an anonymous client: for IPv6 its network of 64
    bits, whose addresses a client may choose.
    """
    if not principal.is_anonymous:
        return principal.name
    host = peer.rpartition(":")[0].strip("[]") or peer
    if ":" in host:
        try:
            network = int(ipaddress.IPv6Address(host.partition("%")[0])) >> 64 << 64
            host = f"{ipaddress.IPv6Address(network)}/64"
        except ValueError:
            pass
    return f"{principal.name}@{host}"


def sender_uuid(number: int) -> bytes:
    """Return the client id, a UUIDv8, that Rheos clients see for senders of other protocols."""
    return bytes((0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0)) + number.to_bytes(4, "big")
