"""Requests from one client to another that await an answer, for any protocol that has them.

A request ends in one of four ways: its target answers, it times out, the target disconnects, or the
requester disconnects. The requester is notified once of a timeout and of a lost target.
"""

import enum
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from penstock.core.histogram import Histogram
from penstock.core.sessions import NUMBER_MIN, Session, node_of
from penstock.core.slices import Slices
from penstock.core.timers import Timers
from penstock.limits import (
    REQUEST_ID_BYTES_MAX,
    REQUEST_SECONDS_MAX,
    REQUESTS_LATE_MAX,
    REQUESTS_PENDING_MAX,
)
from penstock.memory import Account, Purpose
from penstock.ports import Clock

__all__ = [
    "FAILURES_PER_STEP",
    "Failure",
    "Match",
    "Refusal",
    "Requester",
    "Requests",
    "node_target",
]

REQUEST_BOUNDS_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
)
"""Upper bounds of the histogram's buckets."""
_HELD_BYTES: Final = 512
"""Memory of a pending request without its id, in the requester's account."""


FAILURES_PER_STEP: Final = 32
"""Requests that fail before others are served: each sends an answer, which takes about 30 µs."""


class Failure(enum.Enum):
    """Why no answer will come."""

    TIMED_OUT = enum.auto()
    TARGET_LEFT = enum.auto()


class Refusal(enum.Enum):
    """Why a request is refused."""

    DUPLICATE = enum.auto()
    TOO_MANY = enum.auto()


class Match(enum.Enum):
    """Whether an answer belongs to a pending request."""

    AWAITED = enum.auto()
    LATE = enum.auto()
    """The request timed out, or its requester has disconnected."""
    UNKNOWN = enum.auto()


class Requester(Protocol):
    """Receives the failures of its requests."""

    def request_failed(self, identifier: str, failure: Failure) -> None:
        """Handle the failure of the request with this identifier."""


class _Key(NamedTuple):
    """Key of a request. Two clients may use the same identifier at a time."""

    requester: int
    identifier: str


class _Pending(NamedTuple):
    target: int
    asked_at: float
    deadline: float
    callback: Requester
    account: Account  # of the requester


class Requests:
    """All pending requests. One timer serves them: they time out in the order of arrival.

    A changed `seconds_max` applies to later requests. If it is shorter than before, they still
    time out after the earlier ones.
    """

    def __init__(
        self,
        timers: Timers,
        slices: Slices,
        clock: Clock,
        *,
        seconds_max: float = REQUEST_SECONDS_MAX,
        pending_max: int = REQUESTS_PENDING_MAX,
        late_max: int = REQUESTS_LATE_MAX,
    ) -> None:
        self.seconds_max = seconds_max
        self._timers = timers
        self._slices = slices
        self._clock = clock
        self._pending_max = pending_max
        self._late_max = late_max
        self._pending: OrderedDict[_Key, _Pending] = OrderedDict()
        self._by_requester: dict[int, dict[_Key, None]] = {}
        self._by_target: dict[int, dict[_Key, None]] = {}
        self._late: OrderedDict[tuple[_Key, int], None] = OrderedDict()
        self.times = Histogram(REQUEST_BOUNDS_SECONDS)
        """How long answers took; requests without one are not in it."""
        self.failed: Counter[Failure] = Counter()
        """Requests without an answer, by the reason."""
        self._armed = False
        self._held_bytes = _HELD_BYTES + REQUEST_ID_BYTES_MAX

    def allow_ids(self, bytes_max: int) -> None:
        """Count at least this many bytes for the identifier of a pending request."""
        self._held_bytes = max(self._held_bytes, _HELD_BYTES + bytes_max)

    def __len__(self) -> int:
        return len(self._pending)

    def ask(
        self, identifier: str, *, requester: Session, target: Session, callback: Requester
    ) -> Refusal | None:
        """Add a pending request; return the reason if it is refused.

        A requester cannot use an identifier twice at a time.
        """
        return self.ask_remote(
            identifier, requester=requester, target_number=target.number, callback=callback
        )

    def ask_remote(
        self, identifier: str, *, requester: Session, target_number: int, callback: Requester
    ) -> Refusal | None:
        """Add a pending request to a client of another node, or to a node; see `ask`.

        The target of a request to a node is `node_target`: any of its clients may answer.
        """
        key = _Key(requester.number, identifier)
        if key in self._pending:
            return Refusal.DUPLICATE
        asked = self._by_requester.setdefault(requester.number, {})
        if len(asked) >= self._pending_max:
            return Refusal.TOO_MANY
        account = requester.link.account
        if not account.hold(Purpose.REQUESTS, self._held_bytes * (len(asked) + 1)):
            if not asked:
                del self._by_requester[requester.number]
            return Refusal.TOO_MANY
        now = self._clock.monotonic()
        deadline = now + self.seconds_max
        self._pending[key] = _Pending(target_number, now, deadline, callback, account)
        asked[key] = None
        self._by_target.setdefault(target_number, {})[key] = None
        if not self._armed:
            self._arm(self.seconds_max)
        return None

    def pending_to(self, number: int) -> int:
        """Return how many requests await an answer of a client."""
        return len(self._by_target.get(number, ()))

    def callback(self, identifier: str, *, requester_number: int) -> Requester | None:
        """Return what is notified of the failure of a pending request, None if there is none."""
        pending = self._pending.get(_Key(requester_number, identifier))
        return None if pending is None else pending.callback

    def take(
        self, identifier: str, *, requester_number: int, target_number: int
    ) -> Requester | None:
        """Remove a pending request to a target; return its callback, None if there is none."""
        key = _Key(requester_number, identifier)
        pending = self._pending.get(key)
        if pending is None or pending.target != target_number:
            return None
        return self._forget(key).callback

    def answer(self, identifier: str, *, requester_number: int, target: Session) -> Match:
        """Match an answer of `target`; an awaited request is then removed."""
        key = _Key(requester_number, identifier)
        pending = self._pending.get(key)
        if pending is not None and pending.target == target.number:
            self._answered(key)
            return Match.AWAITED
        if (key, target.number) not in self._late:
            return Match.UNKNOWN
        del self._late[key, target.number]
        return Match.LATE

    def answer_remote(self, identifier: str, *, requester_number: int, target_number: int) -> Match:
        """Match an answer of another node: of the target, or of the node itself, for it."""
        key = _Key(requester_number, identifier)
        pending = self._pending.get(key)
        if pending is None:
            return Match.UNKNOWN
        targets = target_number, node_target(node_of(target_number))
        if target_number >= NUMBER_MIN and pending.target not in targets:
            return Match.UNKNOWN
        self._answered(key)
        return Match.AWAITED

    def _answered(self, key: _Key) -> None:
        asked_at = self._forget(key).asked_at
        self.times.add(max(self._clock.monotonic() - asked_at, 0.0))

    def leave(self, session: Session) -> None:
        """Remove the requests of a client that disconnects, and fail those to it."""
        for key in list(self._by_requester.get(session.number, ())):
            self._remember_late(key, self._forget(key).target)
        keys = list(self._by_target.get(session.number, ()))
        if keys:
            self._slices.start(self._fail(keys, session.number))

    def _fail(self, keys: list[_Key], target: int) -> Iterator[None]:
        """Fail requests to a client that has left: it may have had those of many others."""
        for done, key in enumerate(keys, 1):
            pending = self._pending.get(key)
            if pending is not None and pending.target == target:
                self._forget(key)
                self.failed[Failure.TARGET_LEFT] += 1
                pending.callback.request_failed(key.identifier, Failure.TARGET_LEFT)
            if not done % FAILURES_PER_STEP:
                yield

    def _expire(self) -> None:
        self._armed = False
        self._slices.start(self._time_out())

    def _time_out(self) -> Iterator[None]:
        now = self._clock.monotonic()
        done = 0
        while self._pending:
            key, pending = next(iter(self._pending.items()))
            if pending.deadline > now:
                break
            self._forget(key)
            self._remember_late(key, pending.target)
            self.failed[Failure.TIMED_OUT] += 1
            pending.callback.request_failed(key.identifier, Failure.TIMED_OUT)
            done += 1
            if not done % FAILURES_PER_STEP:
                yield
        if self._pending and not self._armed:
            deadline = next(iter(self._pending.values())).deadline
            self._arm(max(deadline - self._clock.monotonic(), 0.0))

    def _arm(self, seconds: float) -> None:
        self._armed = True
        self._timers.after(seconds, self._expire)

    def _forget(self, key: _Key) -> _Pending:
        pending = self._pending.pop(key)
        for index, number in (
            (self._by_requester, key.requester),
            (self._by_target, pending.target),
        ):
            keys = index[number]
            del keys[key]
            if not keys:
                del index[number]
        left = len(self._by_requester.get(key.requester, ()))
        pending.account.hold(Purpose.REQUESTS, self._held_bytes * left)
        return pending

    def _remember_late(self, key: _Key, target: int) -> None:
        self._late[key, target] = None
        if len(self._late) > self._late_max:
            self._late.popitem(last=False)


def node_target(node: int) -> int:
    """Return the number of a node among the targets of requests; no client has it."""
    return -1 - node
