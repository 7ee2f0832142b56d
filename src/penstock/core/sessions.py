"""Clients as the broker sees them, and the numbers they go by."""

from collections.abc import Iterator

from penstock._kernels.batch import Sender
from penstock.core.access import Principal
from penstock.core.answers import Answers
from penstock.core.feeds import Feed, Subscriptions
from penstock.core.routing import Encoding
from penstock.core.timers import Timer
from penstock.ports import Link

__all__ = ["Session", "Sessions"]

NUMBER_MIN = 1000
NUMBER_MAX = 4_294_967_294
"""fleximq 4.1.1: the ids that a broker may give to clients. Other protocols share the space."""


class Session:
    """One connected client, from its handshake until it is gone.

    Its subscriptions are patterns without the place in history that they started from. While it is
    served from the log, `feed` says how, and a subscription's value where in the log it stands.
    """

    __slots__ = (
        "answers",
        "bytes_received",
        "bytes_sent",
        "dropped",
        "echo",
        "encoding",
        "feed",
        "held",
        "link",
        "messages_received",
        "messages_sent",
        "name",
        "number",
        "opened_at",
        "patience",
        "principal",
        "sender",
        "since_us",
        "slow",
        "subscriptions",
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
        self.echo = echo
        self.opened_at = opened_at  # the offset of the first message since
        self.since_us = since_us  # microseconds since the epoch
        self.messages_received = 0
        self.bytes_received = 0
        self.messages_sent = 0
        self.bytes_sent = 0
        self.sender = Sender(sender_uuid(number), number)
        self.subscriptions: Subscriptions = {}
        self.feed: Feed | None = None
        self.dropped = 0
        self.held: dict[Session, None] = {}  # publishers that wait for this one to catch up
        self.patience: Timer | None = None  # how long they do
        self.slow = False  # they waited long enough; from now on it is on its own
        self.answers = Answers(link)

    def reply(self, data: bytes) -> None:
        """Send an answer, behind every answer that still waits for the disk."""
        self.answers.send(data)

    def finish(self) -> None:
        """Close the link behind the last answer, also one that still waits for the disk."""
        self.answers.finish()


class Sessions:
    """Everyone who is connected, by number. Numbers are not reused until the counter wraps."""

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._by_number: dict[int, Session] = {}
        self._next = NUMBER_MIN

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Session]:
        """Go through all, whoever comes or goes meanwhile."""
        return iter(list(self._by_number.values()))

    @property
    def full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._by_number) >= self._sessions_max

    def get(self, number: int) -> Session | None:
        """Return the session with a number, if it is connected."""
        return self._by_number.get(number)

    def next_number(self) -> int:
        """Return a number that nobody has."""
        while True:
            number = self._next
            self._next = NUMBER_MIN if number == NUMBER_MAX else number + 1
            if number not in self._by_number:
                return number

    def add(self, session: Session) -> None:
        """Let a session in."""
        self._by_number[session.number] = session

    def remove(self, session: Session) -> None:
        """Let a session go; one that is gone already is no fault."""
        self._by_number.pop(session.number, None)


def sender_uuid(number: int) -> bytes:
    """Return the id by which Rheos clients know a sender of another protocol: a UUIDv8."""
    return bytes((0, 0, 0, 0, 0, 0, 0x80, 0, 0x80, 0, 0, 0)) + number.to_bytes(4, "big")
