"""The memory budget of the process, and what happens when it is used up."""

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
    MEMORY_PRINCIPAL_SHARE,
    MEMORY_STALL_SECONDS_MAX,
    MEMORY_SWEEP_SECONDS,
    MEMORY_UNAUTHENTICATED_SHARE,
    MEMORY_UNFAIR_SECONDS_MAX,
)
from penstock.memory.account import UNLIMITED, Account, Waiter
from penstock.memory.draw import Draw
from penstock.memory.purpose import PURPOSES, Purpose
from penstock.memory.shares import SMALL_SHARE, Share, Shares, add, change, kind_of

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
        self._large: dict[Account, None] = {}  # accounts with more than one block
        self._round: list[Account] = []  # accounts still to be measured in this round
        self._round_sizes = [0] * PURPOSES  # of the accounts measured in this round
        self._held = [0] * PURPOSES  # of all accounts, in the last round
        # In the order of arrival, with the time when each began to wait.
        self._waiters: dict[tuple[Account, Purpose], tuple[Waiter, float]] = {}
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
        if not first:
            self._large[account] = None
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
        self._large[account] = None
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
                self._large.pop(account, None)
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
            account.shares = tuple(kept)
            change(account.shares, 0, account.granted)

    def close(self, account: Account) -> None:
        """Return all memory of an account."""
        self._accounts.pop(account, None)
        self._stop_waiting(account)
        with self._lock:
            change(account.shares, account.granted, 0)
            account.granted = 0
            account.held = 0
            account.sizes = [0] * PURPOSES
            self._shares.leave(account.shares)
        account.holder = None
        self._large.pop(account, None)
        self._released()

    # --- Waiting ----------------------------------------------------------------------------------

    def enqueue(self, account: Account, waiter: Waiter) -> None:
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
        kept = self._reserved + self._fixed[Purpose.NAMES] + self._fixed[Purpose.PASSWORDS]
        short = whole.used - kept > (whole.limit - kept) * _SHORT
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
            self._held, self._round_sizes = self._round_sizes, [0] * PURPOSES
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
            grown = _target(account, needed) - account.granted
            full = self._shares.full(account.shares, grown)
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
        lacking = max(self._shares.over(share, size) for share in waiting.shares)
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


def _target(account: Account, needed: int) -> int:
    """Return the bytes to draw: whole blocks, but before authentication not above the limit."""
    return max(min(account.room_of(needed), account.bytes_max), needed)


_WITHOUT_LIMIT: Final = MemoryBudget()


def unlimited_account() -> Account:
    """Return an account without limits, for connections that belong to no budget."""
    return Account(_WITHOUT_LIMIT, ())
