"""Accounts that wait for memory, in queues by their shares."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import TypeAlias

from penstock.memory.account import Account, Waiter
from penstock.memory.purpose import Purpose
from penstock.memory.shares import Share

__all__ = ["Queue", "Waiters", "Waits"]

Waits: TypeAlias = dict[Purpose, tuple[Waiter, float]]
"""Waits of an account by purpose, each with the time when it began."""
Queue: TypeAlias = OrderedDict[Account, Waits]
"""Accounts in the order of arrival."""


class Waiters:
    """The waits of all accounts. Those with the same shares stand in one queue.

    The first of a queue stands for all of it: if there is no room for it, there is none for those
    behind it. So the work for many clients of one address is that for one.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[tuple[Share, ...], Queue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __contains__(self, account: Account) -> bool:
        queue = self._queues.get(account.shares)
        return queue is not None and account in queue

    def add(self, account: Account, waiter: Waiter, now: float) -> None:
        """Put an account at the end of its queue; one that waits already keeps its place."""
        queue = self._queues.setdefault(account.shares, OrderedDict())
        queue.setdefault(account, {})[waiter.purpose] = waiter, now

    def remove(self, account: Account, purpose: Purpose | None = None) -> Waits:
        """End the wait of an account for a purpose, or all of its waits; return the ended ones."""
        queue = self._queues.get(account.shares)
        waits = queue.get(account) if queue is not None else None
        if queue is None or waits is None:
            return {}
        if purpose is not None and len(waits) > 1:
            return {purpose: waits.pop(purpose)}
        del queue[account]
        if not queue:
            del self._queues[account.shares]
        return waits

    def queues(self) -> list[tuple[tuple[Share, ...], Queue]]:
        """Return the queues, those of small shares first."""
        return sorted(self._queues.items(), key=_largest_share)

    def expired(self, now: float) -> Iterator[Account]:
        """Iterate over the accounts that have waited for as long as they may."""
        for queue in list(self._queues.values()):
            for account, waits in list(queue.items()):
                for waiter, since in waits.values():
                    if waiter.seconds_max is not None and now - since >= waiter.seconds_max:
                        yield account
                        break


def _largest_share(entry: tuple[tuple[Share, ...], Queue]) -> int:
    return max((share.large for share in entry[0][1:]), default=0)
