"""The memory budget of the process, and what happens when it is used up."""

import heapq
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock.errors import MemoryExhausted
from penstock.limits import (
    MEMORY_ACCOUNTS_PER_TICK,
    MEMORY_ADDRESS_SHARE,
    MEMORY_BLOCK_BYTES,
    MEMORY_CONNECTION_BYTES,
    MEMORY_EVICTIONS_PER_SWEEP,
    MEMORY_PRINCIPAL_SHARE,
    MEMORY_SERVED_PER_TURN,
    MEMORY_STALL_SECONDS_MAX,
    MEMORY_SWEEP_SECONDS,
    MEMORY_UNAUTHENTICATED_SHARE,
    MEMORY_UNFAIR_SECONDS_MAX,
)
from penstock.memory.account import UNLIMITED, Account, Waiter
from penstock.memory.draw import Draw
from penstock.memory.purpose import PURPOSES, Purpose
from penstock.memory.shares import SMALL_SHARE, Share, Shares, add, change, kind_of
from penstock.memory.waiters import Waiters, Waits

__all__ = ["MemoryBudget", "unlimited_account"]

_SHORT: Final = 1 / 2
"""Part of the memory for clients above which the broker reads in small pieces."""


class MemoryBudget:
    """The memory of the process that clients can make it hold.

    `reserve` and `draw` may be called by any thread. Everything else belongs to the thread of the
    event loop. `post` runs a callback in that thread, soon; the server sets it.
    """

    def __init__(
        self,
        bytes_max: int = UNLIMITED,
        *,
        address_share: float = MEMORY_ADDRESS_SHARE,
        principal_share: float = MEMORY_PRINCIPAL_SHARE,
        unauthenticated_share: float = MEMORY_UNAUTHENTICATED_SHARE,
    ) -> None:
        self._lock = threading.Lock()
        self._shares = Shares(
            bytes_max,
            address_share=address_share,
            principal_share=principal_share,
            unauthenticated_share=unauthenticated_share,
        )
        self._whole = self._shares.whole
        self._fixed = [0] * PURPOSES  # reserved and drawn, without an account
        self._reserved = 0
        self._accounts: dict[Account, None] = {}
        self._idle: dict[Account, float] = {}  # accounts without progress: for how many seconds
        self._round: list[Account] = []  # accounts still to be measured in this round
        self._round_sizes = [0] * PURPOSES  # of the accounts measured in this round
        self._held = [0] * PURPOSES  # of all accounts, in the last round
        self._waiters = Waiters()
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
        free = self.large_bytes_max - self._reserved
        return min(self._shares.address_bytes_max, self._shares.principal_bytes_max, free // 2)

    @property
    def reserved(self) -> int:
        """Bytes that are reserved for the whole run."""
        return self._reserved

    @property
    def large_bytes_max(self) -> int:
        """The limit without the part for new connections and the first block of each."""
        return self._whole.limit - int(self._whole.limit * SMALL_SHARE)

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
        shares = (self._shares.unauthenticated, *self._shares.named.values())
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
            add((self._whole,), size)
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
                *([self._shares.join("address", address)] if address else []),
                *([self._shares.join("principal", principal)] if principal else []),
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
                full = self._shares.full(draw.shares, grown)
                if full is not None:
                    self.refusals[kind_of(full)] += 1
                    raise MemoryExhausted(kind_of(full))
            add(draw.shares, grown)
            self._fixed[draw.purpose] += grown
            draw.size = size
        if grown < 0:
            self._released()

    def release(self, draw: Draw) -> None:
        """Return the memory of a draw."""
        self.resize(draw, 0)
        with self._lock:
            self._shares.leave(draw.shares)
            draw.shares = ()

    def level(self, purpose: Purpose, size: int) -> None:
        """Set memory without an account that cannot be refused, such as the log's backlog."""
        with self._lock:
            grown = size - self._fixed[purpose]
            add((self._whole,), grown)
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
                shares.append(self._shares.join("address", address))
        bytes_max = UNLIMITED
        if handshake_bytes_max is not None:
            shares.append(self._shares.unauthenticated)
            bytes_max = handshake_bytes_max + MEMORY_CONNECTION_BYTES + own_bytes
        size = MEMORY_CONNECTION_BYTES // 2 + own_bytes
        account = Account(self, tuple(shares), bytes_max=bytes_max)
        if always:
            account.force(Purpose.CONNECTIONS, size)
        elif not account.hold(Purpose.CONNECTIONS, size):
            with self._lock:
                self._shares.leave(account.shares)
            raise MemoryExhausted(kind_of(self._refused or self._whole))
        self._accounts[account] = None
        return account

    def grow(self, account: Account, needed: int) -> bool:
        """Draw for an account so that it has `needed` bytes; return False if there is no room."""
        target = _target(account, needed)
        grown = target - account.granted
        if target > account.bytes_max and needed > account.bytes_max:
            self.refusals["handshake"] += 1
            return False
        with self._lock:
            first = target <= MEMORY_BLOCK_BYTES
            full = self._shares.full(account.shares, grown, first=first)
            if full is not None:
                self._refused = full
                self.refusals[kind_of(full)] += 1
                return False
            change(account.shares, account.granted, target)
            account.granted = target
        account.overdrawn = False
        self._check_short()
        return True

    def has_room(self, account: Account, needed: int) -> bool:
        """Return whether `grow` would succeed."""
        grown = _target(account, needed) - account.granted
        return self._shares.full(account.shares, grown) is None

    def overdraw(self, account: Account, needed: int) -> None:
        """Draw for an account beyond the limits."""
        target = _target(account, needed)
        with self._lock:
            change(account.shares, account.granted, target)
            account.granted = target
        account.overdrawn = True
        self._check_short()

    def shrink(self, account: Account, needed: int) -> None:
        """Return the blocks of an account that it does not need."""
        target = account.room_of(needed)
        if target < account.granted:
            with self._lock:
                change(account.shares, account.granted, target)
                account.granted = target
            account.overdrawn = False
            if target <= MEMORY_BLOCK_BYTES:
                account.forget_progress()
            self._released()

    def identify(self, account: Account, principal: str | None) -> None:
        """Move an account to the share of a principal; None leaves it to its address."""
        before = account.shares
        kept = [
            share
            for share in before
            if share is not self._shares.unauthenticated and not share.key.startswith("principal ")
        ]
        with self._lock:
            if principal is not None:
                kept.append(self._shares.join("principal", principal))
            change(before, account.granted, 0)
            self._shares.leave(tuple(share for share in before if share not in kept))
            waits = self._waiters.remove(account)
            account.shares = tuple(kept)
            change(account.shares, 0, account.granted)
        for waiter, since in waits.values():
            self._waiters.add(account, waiter, since)

    def close(self, account: Account) -> None:
        """Return all memory of an account."""
        self._accounts.pop(account, None)
        self._waiters.remove(account)
        with self._lock:
            change(account.shares, account.granted, 0)
            account.granted = 0
            account.held = 0
            account.sizes = [0] * PURPOSES
            self._shares.leave(account.shares)
        account.holder = None
        self._idle.pop(account, None)
        self._released()

    # --- Waiting ----------------------------------------------------------------------------------

    def enqueue(self, account: Account, waiter: Waiter) -> None:
        """See Account.wait."""
        self._waiters.add(account, waiter, self._now)

    def _released(self) -> None:
        """Serve the waiting accounts soon, in the thread of the event loop."""
        if (self._waiters or self._short) and not self._posted:
            self._posted = True
            self.post(self._serve_waiters)

    def _serve_waiters(self) -> None:
        """Give memory to the accounts that wait: small shares first, then in order of arrival.

        An account whose share was used up for another in this pass is not tried. A pass serves
        MEMORY_SERVED_PER_TURN waits, so that the event loop goes on with others between passes.
        """
        self._posted = False
        self._check_short()
        full: set[Share] = set()
        left = MEMORY_SERVED_PER_TURN
        for shares, queue in self._waiters.queues():
            while queue and left and full.isdisjoint(shares[1:]):
                account, waits = next(iter(queue.items()))
                purpose, (waiter, _) = next(iter(waits.items()))
                if not account.hold(purpose, waiter.size):
                    full.update(shares[1:])
                    break
                self._waiters.remove(account, purpose)
                left -= 1
                waiter.then()
        if not left:
            self._released()

    def _check_short(self) -> None:
        whole = self._whole
        kept = self._reserved + self._fixed[Purpose.NAMES] + self._fixed[Purpose.PASSWORDS]
        short = whole.used - kept > (whole.limit - kept) * _SHORT
        if short is not self._short:
            self._short = short
            self.on_short(short)

    # --- Sweeps -----------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Measure some accounts; sweep every MEMORY_SWEEP_SECONDS. `now` is monotonic."""
        self._now = now
        if not self._round:
            self._held, self._round_sizes = self._round_sizes, [0] * PURPOSES
            self._round = list(reversed(self._accounts))
        for _ in range(min(len(self._round), MEMORY_ACCOUNTS_PER_TICK)):
            self._measure(self._round.pop(), now)
        if now - self._swept_at >= MEMORY_SWEEP_SECONDS:
            self._swept_at = now
            self._sweep(now)

    def _measure(self, account: Account, now: float) -> None:
        seconds = account.idle_seconds(now)
        self.shrink(account, account.held)
        for purpose, size in enumerate(account.sizes):
            self._round_sizes[purpose] += size
        if seconds >= MEMORY_UNFAIR_SECONDS_MAX and not account.closed:
            self._idle[account] = seconds
        else:
            self._idle.pop(account, None)

    def _sweep(self, now: float) -> None:
        """Cut connections without progress for which others wait, the largest first."""
        self._serve_waiters()
        left = MEMORY_EVICTIONS_PER_SWEEP
        for shares, queue in self._waiters.queues():
            if queue and left:
                left -= self._evict_idle(shares, next(iter(queue.items())), left)
        for account in itertools.islice(self._waiters.expired(now), left):
            self._evict(account)

    def _evict_idle(
        self, shares: tuple[Share, ...], first: tuple[Account, Waits], count_max: int
    ) -> int:
        """Evict the largest idle accounts for the first of a queue; return their number.

        Accounts that wait for memory themselves are evicted only if there are no others.

        They must be idle for MEMORY_STALL_SECONDS_MAX; for MEMORY_UNFAIR_SECONDS_MAX only, if their
        share holds more than twice as much as that of the account that waits.
        """
        waiting, waits = first
        purpose, (waiter, _) = next(iter(waits.items()))
        needed = waiting.held + waiter.size - waiting.size(purpose)
        size = _target(waiting, needed) - waiting.granted
        full = self._shares.full(shares, size)
        if full is None:
            return 0
        lacking = max(self._shares.over(share, size) for share in shares)
        fair = 2 * (waiting.share_bytes + size)
        found = [
            account
            for account, seconds in self._idle.items()
            if full in account.shares
            and (seconds >= MEMORY_STALL_SECONDS_MAX or account.share_bytes > fair)
        ]
        others = [account for account in found if account not in self._waiters]
        evicted = 0
        for account in heapq.nlargest(count_max, others or found, key=lambda each: each.granted):
            if lacking <= 0:
                break
            lacking -= account.granted
            evicted += 1
            self._evict(account)
        return evicted

    def _evict(self, account: Account) -> None:
        self._waiters.remove(account)
        self._idle.pop(account, None)
        self.evictions += 1
        if account.holder is not None:
            account.holder.evict()


def _target(account: Account, needed: int) -> int:
    """Return the bytes to draw: whole blocks, but before authentication not above the limit."""
    return max(min(account.room_of(needed), account.bytes_max), needed)


_WITHOUT_LIMIT: Final = MemoryBudget()


def unlimited_account() -> Account:
    """Return an account without limits, for connections that belong to no budget."""
    return Account(_WITHOUT_LIMIT, ())
