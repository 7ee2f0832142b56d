"""Shares of the budget: of the whole, of addresses, of principals, of unauthenticated clients."""

from typing import Final

from penstock.limits import MEMORY_BLOCK_BYTES

__all__ = ["SHARES", "SMALL_SHARE", "Share", "Shares", "add", "change", "kind_of"]

SHARES: Final = ("total", "address", "principal", "unauthenticated", "handshake")
"""The limits that a draw can meet: labels of a metric."""
SMALL_SHARE: Final = 1 / 8
"""Part of the budget for new connections and for the first block of each."""


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


class Shares:
    """The shares of a budget that are in use. The budget holds its lock for each change."""

    def __init__(
        self,
        bytes_max: int,
        *,
        address_share: float,
        principal_share: float,
        unauthenticated_share: float,
    ) -> None:
        self.whole = Share("total", bytes_max)
        self.unauthenticated = Share("unauthenticated", int(bytes_max * unauthenticated_share))
        self.address_bytes_max = int(bytes_max * address_share)
        self.principal_bytes_max = int(bytes_max * principal_share)
        self.named: dict[str, Share] = {}
        """Those of addresses and principals, while they are used."""

    def join(self, kind: str, name: str) -> Share:
        """Return the share of an address or principal, and count a user of it."""
        key = f"{kind} {name}"
        share = self.named.get(key)
        if share is None:
            limit = self.address_bytes_max if kind == "address" else self.principal_bytes_max
            share = self.named[key] = Share(key, limit)
        share.users += 1
        return share

    def leave(self, shares: tuple[Share, ...]) -> None:
        """Forget the shares of addresses and principals that have no other user."""
        for share in shares:
            if share.key in self.named:
                share.users -= 1
                if not share.users:
                    del self.named[share.key]

    def full(self, shares: tuple[Share, ...], size: int, *, first: bool = False) -> Share | None:
        """Return a share without room for `size` more bytes, None if all have room."""
        for share in shares:
            if self.over(share, size, first=first) > 0:
                lacks_free = share.large + size <= share.limit and share is not self.unauthenticated
                return self.whole if lacks_free and not first else share
        return None

    def over(self, share: Share, size: int, *, first: bool = False) -> int:
        """Return the bytes that a share lacks for `size` more; 0 or less if it has room.

        The first block of a connection may exceed the share of its address, and use the part of
        the budget that is kept for small ones. Other draws leave as much free as their share holds:
        so there is room for those who hold little, however many hold much.
        """
        whole = self.whole
        if share is self.unauthenticated:
            return share.used + size - share.limit
        if first:
            return share.used + size - (whole.limit if share is whole else 2 * share.limit)
        free = whole.limit - int(whole.limit * SMALL_SHARE) - whole.large - size
        if share is whole:
            return max(-free, share.used + size - whole.limit)
        return share.large + size - min(share.limit, free)


def change(shares: tuple[Share, ...], before: int, after: int) -> None:
    """Count the change of an account's draw."""
    large = max(after - MEMORY_BLOCK_BYTES, 0) - max(before - MEMORY_BLOCK_BYTES, 0)
    for share in shares:
        share.used += after - before
        share.large += large


def add(shares: tuple[Share, ...], size: int) -> None:
    """Count a draw without an account: all of it is large."""
    for share in shares:
        share.used += size
        share.large += size


def kind_of(share: Share) -> str:
    """Return the kind of a share, for metrics: its key without address or name."""
    return share.key.partition(" ")[0]
