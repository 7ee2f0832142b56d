"""The memory budget of the process: accounts, shares, and what happens when it is used up.

All memory that clients can make the broker hold is drawn from one budget. A connection has an
`Account`; its buffers are held in it by purpose. An account draws in blocks, so most changes of a
buffer touch the account alone. An account draws from three shares at a time: the whole budget, the
share of its address, and the share of its principal, or of all clients without authentication.

If a share is used up, `hold` returns False: the caller pauses, sends less, or refuses. `wait` calls
back when there is room. `tick` returns blocks that are no longer needed, and cuts connections that
hold memory without progress while others wait.
"""

import enum
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from penstock.errors import MemoryExhausted
from penstock.limits import (
    MEMORY_ACCOUNTS_PER_TICK,
    MEMORY_ADDRESS_SHARE,
    MEMORY_BLOCK_BYTES,
    MEMORY_CONNECTION_BYTES,
    MEMORY_PRINCIPAL_SHARE,
    MEMORY_STALL_SECONDS_MAX,
    MEMORY_SWEEP_SECONDS,
    MEMORY_UNAUTHENTICATED_SHARE,
    MEMORY_UNFAIR_SECONDS_MAX,
)

__all__ = [
    "SHARES",
    "Account",
    "Draw",
    "Holder",
    "MemoryBudget",
    "Purpose",
    "Share",
    "unlimited_account",
]

_UNLIMITED: Final = 1 << 62
_SLACK_BYTES: Final = 4 * MEMORY_BLOCK_BYTES
"""Unused bytes that an account keeps until the next sweep."""
_SMALL_SHARE: Final = 1 / 8
"""Part of the budget for new connections and for the first block of each."""
_SHORT: Final = 1 / 2
"""Part of the memory for clients above which the broker reads in small pieces."""


class Purpose(enum.IntEnum):
    """The purposes that memory is held for; the label of a metric."""

    CONNECTIONS = 0
    """Objects of a connection."""
    INPUT = enum.auto()
    """Unfinished frames, WebSocket messages and datagrams."""
    OUTPUT = enum.auto()
    """Bytes that clients have not read."""
    REPLAY = enum.auto()
    """Messages from the log, and live messages queued until a client has caught up."""
    ANSWERS = enum.auto()
    """Answers that wait for the disk."""
    REQUESTS = enum.auto()
    """Requests that await an answer."""
    HOOKS = enum.auto()
    """Messages that wait for middleware."""
    HTTP = enum.auto()
    """Bodies of requests, and responses."""
    LOG = enum.auto()
    """Messages that wait for the disk."""
    CACHES = enum.auto()
    FLIGHT = enum.auto()
    """Rows that Arrow Flight stages and publishes."""
    NAMES = enum.auto()
    """Topics and their names."""
    PASSWORDS = enum.auto()
    """Verifications of passwords."""
    OVERHEAD = enum.auto()
    """Memory of the process that no other purpose counts."""

    @property
    def label(self) -> str:
        """The name in metrics."""
        return self.name.lower()


_PURPOSES: Final = len(Purpose)

SHARES: Final = ("total", "address", "principal", "unauthenticated", "handshake")
"""The limits that a draw can meet: labels of a metric."""


class Holder(Protocol):
    """The owner of an account: a connection."""

    def measure(self) -> int:
        """Update the sizes in the account; return the bytes that were moved so far."""

    def evict(self) -> None:
        """Release the memory and end the connection: others wait for it."""


class Share:
    """A part of the budget: its limit and its use, in bytes.

    `large` is the use without the first block of each connection.
    """

    __slots__ = ("key", "large", "limit", "used", "users")

    def __init__(self, key: str, limit: int) -> None:
        self.key = key
        self.limit = limit
        self.used = 0
        self.large = 0
        self.users = 0


class _Waiter(NamedTuple):
    purpose: Purpose
    size: int
    then: Callable[[], None]
    seconds_max: float | None


class Account:
    """The memory of one connection. The thread of the event loop owns it.

    A closed account accepts everything and holds nothing.
    """

    __slots__ = (
        "_budget",
        "_moved",
        "_moved_at",
        "authenticated",
        "bytes_max",
        "closed",
        "granted",
        "held",
        "holder",
        "overdrawn",
        "shares",
        "sizes",
    )

    def __init__(
        self, budget: "MemoryBudget", shares: tuple[Share, ...], *, bytes_max: int = _UNLIMITED
    ) -> None:
        """Use `MemoryBudget.open` instead."""
        self._budget = budget
        self._moved = 0
        self._moved_at = 0.0
        self.shares = shares
        self.bytes_max = bytes_max
        self.sizes = [0] * _PURPOSES
        """Bytes held, by purpose."""
        self.held = 0
        """Bytes held for all purposes."""
        self.granted = 0
        """Bytes drawn from the budget: at least `held`."""
        self.authenticated = bytes_max == _UNLIMITED
        """Whether the client has completed its handshake; before, it may hold little."""
        self.holder: Holder | None = None
        self.closed = False
        self.overdrawn = False
        """Whether `force` has exceeded a share since the last successful `hold`."""

    def size(self, purpose: Purpose) -> int:
        """Return the bytes held for a purpose."""
        return self.sizes[purpose]

    def hold(self, purpose: Purpose, size: int) -> bool:
        """Set the bytes held for a purpose; return False and change nothing if there is no room."""
        sizes = self.sizes
        needed = self.held + size - sizes[purpose]
        if needed > self.granted:
            if self.closed:
                return True
            if not self._budget.grow(self, needed):
                return False
        elif needed + _SLACK_BYTES < self.granted:
            self._budget.shrink(self, needed)
        sizes[purpose] = size
        self.held = needed
        return True

    def force(self, purpose: Purpose, size: int) -> bool:
        """Set the bytes held for a purpose, also beyond the limits; return False if beyond."""
        if self.hold(purpose, size):
            return True
        needed = self.held + size - self.sizes[purpose]
        self._budget.overdraw(self, needed)
        self.sizes[purpose] = size
        self.held = needed
        return False

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes could be held now."""
        needed = self.held + size
        return needed <= self.granted or self.closed or self._budget.has_room(self, needed)

    def ever_fits(self, size: int) -> bool:
        """Return whether `size` bytes could be held if all others held nothing."""
        room = self._budget.account_bytes_max if self.shares else _UNLIMITED
        return size + MEMORY_CONNECTION_BYTES <= min(self.bytes_max, room)

    def wait(
        self,
        purpose: Purpose,
        size: int,
        then: Callable[[], None],
        *,
        seconds_max: float | None = None,
    ) -> None:
        """Hold `size` bytes for a purpose as soon as there is room, then call `then`.

        After `seconds_max` the holder is evicted instead.
        """
        self._budget.enqueue(self, _Waiter(purpose, size, then, seconds_max))

    def identify(self, principal: str | None) -> None:
        """Lift the limit before authentication; None is an anonymous client."""
        self.bytes_max = _UNLIMITED
        self.authenticated = True
        self._budget.identify(self, principal)

    def close(self) -> None:
        """Return all memory."""
        if not self.closed:
            self.closed = True
            self._budget.close(self)

    # --- Called by the budget ---------------------------------------------------------------------

    def room_of(self, needed: int) -> int:
        """Return the bytes to draw for `needed` bytes: whole blocks above the connection's own."""
        if needed <= MEMORY_CONNECTION_BYTES:
            return MEMORY_CONNECTION_BYTES
        return -(-needed // MEMORY_BLOCK_BYTES) * MEMORY_BLOCK_BYTES

    def idle_seconds(self, now: float) -> float:
        """Measure the account; return the time since it moved a block, 0 if it holds little."""
        if self.holder is None:
            return 0.0
        moved = self.holder.measure()
        if self.held - self.sizes[Purpose.CONNECTIONS] <= MEMORY_BLOCK_BYTES:
            self._moved_at = 0.0
            return 0.0
        if moved - self._moved >= MEMORY_BLOCK_BYTES or not self._moved_at:
            self._moved, self._moved_at = moved, now
        return now - self._moved_at

    def forget_progress(self) -> None:
        """Measure progress anew: the account holds little."""
        self._moved_at = 0.0

    @property
    def share_bytes(self) -> int:
        """The most that a share of the account holds, without the first block of connections."""
        return max((share.large for share in self.shares[1:]), default=self.granted)


class Draw:
    """Memory drawn by a thread: a context manager that returns it at the end."""

    def __init__(self, budget: "MemoryBudget", purpose: Purpose, shares: tuple[Share, ...]) -> None:
        """Use `MemoryBudget.draw` instead."""
        self._budget = budget
        self.purpose = purpose
        self.shares = shares
        self.size = 0

    def resize(self, size: int) -> None:
        """Change the size; raise MemoryExhausted and change nothing if there is no room."""
        self._budget.resize(self, size)

    def release(self) -> None:
        """Return the memory; a second call does nothing."""
        self._budget.release(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class MemoryBudget:
    """The memory of the process that clients can make it hold.

    `reserve` and `draw` may be called by any thread. Everything else belongs to the thread of the
    event loop. `post` runs a callback in that thread, soon; the server sets it.
    """

    def __init__(
        self,
        bytes_max: int = _UNLIMITED,
        *,
        address_share: float = MEMORY_ADDRESS_SHARE,
        principal_share: float = MEMORY_PRINCIPAL_SHARE,
        unauthenticated_share: float = MEMORY_UNAUTHENTICATED_SHARE,
    ) -> None:
        self._lock = threading.Lock()
        self._whole = Share("total", bytes_max)
        self._address_bytes_max = int(bytes_max * address_share)
        self._principal_bytes_max = int(bytes_max * principal_share)
        self._unauthenticated = Share("unauthenticated", int(bytes_max * unauthenticated_share))
        self._shares: dict[str, Share] = {}  # of addresses and principals, while they are used
        self._fixed = [0] * _PURPOSES  # reserved and drawn, without an account
        self._reserved = 0
        self._accounts: dict[Account, None] = {}
        self._large: dict[Account, None] = {}  # accounts with more than one block
        self._round: list[Account] = []  # accounts still to be measured in this round
        self._round_sizes = [0] * _PURPOSES  # of the accounts measured in this round
        self._held = [0] * _PURPOSES  # of all accounts, in the last round
        # In the order of arrival, with the time when each began to wait.
        self._waiters: dict[tuple[Account, Purpose], tuple[_Waiter, float]] = {}
        self._refused: Share | None = None  # the share that the last refusal met
        self._posted = False
        self._swept_at = 0.0
        self._now = 0.0
        self._short = False
        self.post: Callable[[Callable[[], None]], object] = lambda work: work()
        self.on_short: Callable[[bool], None] = lambda _short: None
        """Called when the budget becomes nearly used up, and when it no longer is."""
        self.refusals: Counter[str] = Counter()
        """How often a draw was refused, by the share that was used up."""
        self.evictions = 0
        """Connections that were cut because they held memory without progress."""

    # --- Figures ----------------------------------------------------------------------------------

    @property
    def bytes_max(self) -> int:
        """The limit."""
        return self._whole.limit

    @property
    def used(self) -> int:
        """Bytes that are drawn."""
        return self._whole.used

    @property
    def waiting(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiters)

    @property
    def account_bytes_max(self) -> int:
        """The most that one connection can ever hold: a share, and not more than is then free."""
        free = self._whole.limit - int(self._whole.limit * _SMALL_SHARE) - self._reserved
        return min(self._address_bytes_max, self._principal_bytes_max, free // 2)

    def fixed(self, purpose: Purpose) -> int:
        """Return the bytes of a purpose that belong to no connection."""
        return self._fixed[purpose]

    def by_purpose(self) -> dict[str, int]:
        """Return the bytes that are held, by the label of their purpose.

        Those of connections are from the last round of `tick`.
        """
        return {each.label: self._fixed[each] + self._held[each] for each in Purpose}

    def left(self) -> dict[str, int]:
        """Return all draws of accounts by share; empty if every account is closed.

        Tests assert that it is empty when all clients have left.
        """
        shares = (self._unauthenticated, *self._shares.values())
        found = {share.key: share.used for share in shares if share.used}
        whole = self._whole.used - sum(self._fixed)
        return {**found, "accounts": whole} if whole else found

    # --- Memory without an account ----------------------------------------------------------------

    def reserve(self, purpose: Purpose, size: int) -> None:
        """Reserve memory for the whole run, such as the maximum of a cache.

        Raise MemoryExhausted. A negative size returns some of it.
        """
        with self._lock:
            if self._whole.used + size > self._whole.limit:
                raise MemoryExhausted(self._whole.key)
            self._add((self._whole,), size)
            self._fixed[purpose] += size
            self._reserved += size

    def draw(
        self, purpose: Purpose, size: int = 0, *, address: str = "", principal: str = ""
    ) -> Draw:
        """Draw memory from any thread; raise MemoryExhausted.

        Address and principal name the shares that it counts against; empty ones have none.
        """
        with self._lock:
            shares = (
                self._whole,
                *([self._share("address", address)] if address else []),
                *([self._share("principal", principal)] if principal else []),
            )
        made = Draw(self, purpose, shares)
        try:
            made.resize(size)
        except MemoryExhausted:
            made.release()
            raise
        return made

    def resize(self, draw: Draw, size: int) -> None:
        """Change the size of a draw; raise MemoryExhausted."""
        grown = size - draw.size
        with self._lock:
            if grown > 0:
                full = self._full(draw.shares, grown)
                if full is not None:
                    self.refusals[_kind(full)] += 1
                    raise MemoryExhausted(_kind(full))
            self._add(draw.shares, grown)
            self._fixed[draw.purpose] += grown
            draw.size = size
        if grown < 0:
            self._released()

    def release(self, draw: Draw) -> None:
        """Return the memory of a draw."""
        self.resize(draw, 0)
        with self._lock:
            self._leave(draw.shares)
            draw.shares = ()

    def level(self, purpose: Purpose, size: int) -> None:
        """Set memory without an account that cannot be refused, such as the log's backlog."""
        with self._lock:
            grown = size - self._fixed[purpose]
            self._add((self._whole,), grown)
            self._fixed[purpose] = size
        if grown > 0:
            self._check_short()
        elif grown:
            self._released()

    # --- Accounts ---------------------------------------------------------------------------------

    def open(
        self,
        address: str = "",
        *,
        handshake_bytes_max: int | None = None,
        own_bytes: int = 0,
        always: bool = False,
    ) -> Account:
        """Open the account of a connection; raise MemoryExhausted if there is no room for it.

        Until `identify`, it may hold `handshake_bytes_max`, and counts as unauthenticated.
        `own_bytes` is the fixed memory of the connection, above the usual. With `always`, it is
        drawn even if there is no room.
        """
        shares = [self._whole]
        if address:
            with self._lock:
                shares.append(self._share("address", address))
        bytes_max = _UNLIMITED
        if handshake_bytes_max is not None:
            shares.append(self._unauthenticated)
            bytes_max = handshake_bytes_max + MEMORY_CONNECTION_BYTES + own_bytes
        size = MEMORY_CONNECTION_BYTES // 2 + own_bytes
        account = Account(self, tuple(shares), bytes_max=bytes_max)
        if always:
            account.force(Purpose.CONNECTIONS, size)
        elif not account.hold(Purpose.CONNECTIONS, size):
            with self._lock:
                self._leave(account.shares)
            raise MemoryExhausted(_kind(self._refused or self._whole))
        self._accounts[account] = None
        return account

    def grow(self, account: Account, needed: int) -> bool:
        """Draw for an account so that it has `needed` bytes; return False if there is no room."""
        target = self._target(account, needed)
        grown = target - account.granted
        if target > account.bytes_max and needed > account.bytes_max:
            self.refusals["handshake"] += 1
            return False
        with self._lock:
            first = target <= MEMORY_BLOCK_BYTES
            full = self._full(account.shares, grown, first=first)
            if full is not None:
                self._refused = full
                self.refusals[_kind(full)] += 1
                return False
            self._change(account.shares, account.granted, target)
            account.granted = target
        if not first:
            self._large[account] = None
        account.overdrawn = False
        self._check_short()
        return True

    def has_room(self, account: Account, needed: int) -> bool:
        """Return whether `grow` would succeed."""
        grown = self._target(account, needed) - account.granted
        return self._full(account.shares, grown) is None

    def overdraw(self, account: Account, needed: int) -> None:
        """Draw for an account beyond the limits."""
        target = self._target(account, needed)
        with self._lock:
            self._change(account.shares, account.granted, target)
            account.granted = target
        self._large[account] = None
        account.overdrawn = True
        self._check_short()

    def shrink(self, account: Account, needed: int) -> None:
        """Return the blocks of an account that it does not need."""
        target = account.room_of(needed)
        if target < account.granted:
            with self._lock:
                self._change(account.shares, account.granted, target)
                account.granted = target
            account.overdrawn = False
            if target <= MEMORY_BLOCK_BYTES:
                self._large.pop(account, None)
                account.forget_progress()
            self._released()

    def identify(self, account: Account, principal: str | None) -> None:
        """Move an account to the share of a principal; None leaves it to its address."""
        before = account.shares
        kept = [
            share
            for share in before
            if share is not self._unauthenticated and not share.key.startswith("principal ")
        ]
        with self._lock:
            if principal is not None:
                kept.append(self._share("principal", principal))
            self._change(before, account.granted, 0)
            self._leave(tuple(share for share in before if share not in kept))
            account.shares = tuple(kept)
            self._change(account.shares, 0, account.granted)

    def close(self, account: Account) -> None:
        """Return all memory of an account."""
        self._accounts.pop(account, None)
        self._stop_waiting(account)
        with self._lock:
            self._change(account.shares, account.granted, 0)
            account.granted = 0
            account.held = 0
            account.sizes = [0] * _PURPOSES
            self._leave(account.shares)
        account.holder = None
        self._large.pop(account, None)
        self._released()

    # --- Waiting ----------------------------------------------------------------------------------

    def enqueue(self, account: Account, waiter: _Waiter) -> None:
        """See Account.wait."""
        self._waiters[account, waiter.purpose] = waiter, self._now

    def _stop_waiting(self, account: Account) -> None:
        if self._waiters:
            for purpose in Purpose:
                self._waiters.pop((account, purpose), None)

    def _released(self) -> None:
        """Serve the waiting accounts soon, in the thread of the event loop."""
        if (self._waiters or self._short) and not self._posted:
            self._posted = True
            self.post(self._serve_waiters)

    def _serve_waiters(self) -> None:
        """Give memory to the accounts that wait: small shares first, then in order of arrival.

        An account whose share was used up for another in this pass is not tried.
        """
        self._posted = False
        self._check_short()
        full: set[Share] = set()
        waiting = sorted(self._waiters.items(), key=lambda item: item[0][0].share_bytes)
        for key, (waiter, _) in waiting:
            account = key[0]
            if key not in self._waiters or not full.isdisjoint(account.shares[1:]):
                continue
            if account.hold(waiter.purpose, waiter.size):
                self._waiters.pop(key, None)
                waiter.then()
            else:
                full.update(account.shares[1:])

    def _check_short(self) -> None:
        whole = self._whole
        short = whole.used - self._reserved > (whole.limit - self._reserved) * _SHORT
        if short is not self._short:
            self._short = short
            self.on_short(short)

    # --- Sweeps -----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Measure some accounts, and sweep all every MEMORY_SWEEP_SECONDS; `now` is monotonic."""
        self._now = now
        for _ in range(min(len(self._round), MEMORY_ACCOUNTS_PER_TICK)):
            account = self._round.pop()
            if account.holder is not None:
                account.holder.measure()
            self.shrink(account, account.held)
            for purpose, size in enumerate(account.sizes):
                self._round_sizes[purpose] += size
        if not self._round:
            self._held, self._round_sizes = self._round_sizes, [0] * _PURPOSES
            self._round = list(self._accounts)
        if now - self._swept_at >= MEMORY_SWEEP_SECONDS:
            self._swept_at = now
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        """Cut connections without progress for which others wait, the largest first."""
        idle = {
            account: seconds
            for account in list(self._large)
            if (seconds := account.idle_seconds(now)) >= MEMORY_UNFAIR_SECONDS_MAX
        }
        self._serve_waiters()
        for (account, purpose), (waiter, since) in list(self._waiters.items()):
            if (account, purpose) not in self._waiters:
                continue
            needed = account.held + waiter.size - account.size(purpose)
            grown = self._target(account, needed) - account.granted
            full = self._full(account.shares, grown)
            evicted = full is not None and self._evict_idle(idle, account, full, grown)
            if not evicted and waiter.seconds_max is not None and now - since >= waiter.seconds_max:
                self._evict(account)

    def _evict_idle(
        self, idle: dict[Account, float], waiting: Account, full: Share, size: int
    ) -> bool:
        """Evict the largest idle accounts of a share until it has room; return False if none is.

        Accounts that wait for memory themselves are evicted only if there are no others.

        They must be idle for MEMORY_STALL_SECONDS_MAX; for MEMORY_UNFAIR_SECONDS_MAX only, if their
        share holds more than twice as much as that of the account that waits.
        """
        lacking = max(self._over(share, size) for share in waiting.shares)
        fair = 2 * (waiting.share_bytes + size)
        found = [
            account
            for account, seconds in idle.items()
            if full in account.shares
            and not account.closed
            and (seconds >= MEMORY_STALL_SECONDS_MAX or account.share_bytes > fair)
        ]
        waiting_accounts = {key[0] for key in self._waiters}  # the broker does not read them
        others = [account for account in found if account not in waiting_accounts]
        for account in sorted(others or found, key=lambda each: each.granted, reverse=True):
            if lacking <= 0:
                break
            lacking -= account.granted
            del idle[account]
            self._evict(account)
        return bool(found)

    def _evict(self, account: Account) -> None:
        self._stop_waiting(account)
        self.evictions += 1
        if account.holder is not None:
            account.holder.evict()

    # --- Shares -----------------------------------------------------------------------------------

    def _share(self, kind: str, name: str) -> Share:
        key = f"{kind} {name}"
        share = self._shares.get(key)
        if share is None:
            limit = self._address_bytes_max if kind == "address" else self._principal_bytes_max
            share = self._shares[key] = Share(key, limit)
        share.users += 1
        return share

    def _leave(self, shares: tuple[Share, ...]) -> None:
        """Forget the shares of addresses and principals that have no other user."""
        for share in shares:
            if share.key in self._shares:
                share.users -= 1
                if not share.users:
                    del self._shares[share.key]

    def _target(self, account: Account, needed: int) -> int:
        """Return the bytes to draw: whole blocks, but before authentication not above the limit."""
        return max(min(account.room_of(needed), account.bytes_max), needed)

    def _full(self, shares: tuple[Share, ...], size: int, *, first: bool = False) -> Share | None:
        """Return a share without room for `size` more bytes, None if all have room."""
        for share in shares:
            if self._over(share, size, first=first) > 0:
                lacks_free = (
                    share.large + size <= share.limit and share is not self._unauthenticated
                )
                return self._whole if lacks_free and not first else share
        return None

    def _over(self, share: Share, size: int, *, first: bool = False) -> int:
        """Return the bytes that a share lacks for `size` more; 0 or less if it has room.

        The first block of a connection may exceed the share of its address, and use the part of
        the budget that is kept for small ones. Other draws leave as much free as their share holds:
        so there is room for those who hold little, however many hold much.
        """
        whole = self._whole
        if share is self._unauthenticated:
            return share.used + size - share.limit
        if first:
            return share.used + size - (whole.limit if share is whole else 2 * share.limit)
        free = whole.limit - int(whole.limit * _SMALL_SHARE) - whole.large - size
        if share is whole:
            return max(-free, share.used + size - whole.limit)
        return share.large + size - min(share.limit, free)

    @staticmethod
    def _change(shares: tuple[Share, ...], before: int, after: int) -> None:
        """Count the change of an account's draw."""
        large = max(after - MEMORY_BLOCK_BYTES, 0) - max(before - MEMORY_BLOCK_BYTES, 0)
        for share in shares:
            share.used += after - before
            share.large += large

    @staticmethod
    def _add(shares: tuple[Share, ...], size: int) -> None:
        """Count a draw without an account: all of it is large."""
        for share in shares:
            share.used += size
            share.large += size


def _kind(share: Share) -> str:
    """Return the kind of a share, for metrics: its key without address or name."""
    return share.key.partition(" ")[0]


_WITHOUT_LIMIT: Final = MemoryBudget()


def unlimited_account() -> Account:
    """Return an account without limits, for connections that belong to no budget."""
    return Account(_WITHOUT_LIMIT, ())
