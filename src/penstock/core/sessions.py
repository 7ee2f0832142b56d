"""Clients as the broker sees them, and the numbers they go by."""

from collections import deque
from collections.abc import Iterator

from penstock._kernels.batch import Sender
from penstock.core.access import Principal
from penstock.core.routing import Encoding
from penstock.core.timers import Timer
from penstock.ports import Link

__all__ = ["Session", "Sessions"]

NUMBER_MIN = 1000
NUMBER_MAX = 4_294_967_294
"""fleximq 4.1.1: the ids that a broker may give to clients. Other protocols share the space."""


class Session:
    """One connected client, from its handshake until it is gone."""

    __slots__ = (
        "_finishing",
        "_waiting",
        "dropped",
        "echo",
        "encoding",
        "held",
        "link",
        "name",
        "number",
        "patience",
        "principal",
        "sender",
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
    ) -> None:
        self.number = number
        self.encoding = encoding
        self.link = link
        self.name = name
        self.principal = principal
        self.echo = echo
        self.sender = Sender(sender_uuid(number), number)
        self.subscriptions: dict[str, None] = {}
        self.dropped = 0
        self.held: dict[Session, None] = {}  # publishers that wait for this one to catch up
        self.patience: Timer | None = None  # how long they do
        self.slow = False  # they waited long enough; from now on it is on its own
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._finishing = False

    def reply(self, data: bytes) -> None:
        """Send an answer, behind every answer that still waits for the disk."""
        if self._waiting:
            self._waiting.append((-1, data))
        else:
            self.link.write(data)

    def reply_when_durable(self, offset: int, data: bytes, *, durable_offset: int) -> None:
        """Send an answer once all messages up to and with `offset` are durable."""
        if not self._waiting and offset < durable_offset:
            self.link.write(data)
        else:
            self._waiting.append((offset, data))

    def release(self, durable_offset: int) -> bool:
        """Send the answers that waited for offsets below `durable_offset`; tell if more wait."""
        waiting = self._waiting
        ready = []
        while waiting and waiting[0][0] < durable_offset:
            ready.append(waiting.popleft()[1])
        if ready:
            self.link.write(b"".join(ready))
        if self._finishing and not waiting:
            self.link.close()
        return bool(waiting)

    def finish(self) -> None:
        """Close the link behind the last answer, also one that still waits for the disk."""
        if self._waiting:
            self._finishing = True
        else:
            self.link.close()


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
