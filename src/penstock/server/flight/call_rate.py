"""How many Flight calls begin per second.

gRPC starts a thread for a call before Penstock sees it, and each such thread wants the interpreter
lock. Hundreds of small calls per second delay the event loop, whatever becomes of them.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from penstock.core.rates import RateLimit
from penstock.limits import FLIGHT_CALLS_PER_SECOND_MAX, FLIGHT_CALLS_PER_SECOND_PER_ADDRESS_MAX

__all__ = ["CallRate"]

_STEP_SECONDS: Final = 0.01


class CallRate:
    """Lets calls begin, up to a number per second in all and from each address. One thread uses it.

    `later` calls a function after some seconds.
    """

    def __init__(
        self,
        now: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        *,
        per_second: int = FLIGHT_CALLS_PER_SECOND_MAX,
        per_address: int = FLIGHT_CALLS_PER_SECOND_PER_ADDRESS_MAX,
    ) -> None:
        self._now = now
        self._later = later
        self._per_address = per_address
        self._all = RateLimit(per_second, now())
        self._addresses: dict[str, RateLimit] = {}
        self._waiting: dict[str, OrderedDict[Callable[[], None], None]] = {}

    def begin(self, address: str) -> bool:
        """Count a call of an address that begins; return False if it has to wait."""
        limit = self._limit(address)
        if not self._has_room(limit):
            return False
        limit.take(1)
        self._all.take(1)
        return True

    def wait(self, address: str, retry: Callable[[], None]) -> None:
        """Call `retry` when the address may begin a call: those that wait longest first."""
        if not self._waiting:
            self._later(_STEP_SECONDS, self._step)
        self._waiting.setdefault(address, OrderedDict())[retry] = None

    def leave(self, address: str, retry: Callable[[], None]) -> None:
        """Do not call `retry` any more."""
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.pop(retry, None)

    def forget(self) -> None:
        """Forget addresses that have begun no call for a while."""
        now = self._now()
        self._addresses = {
            address: limit
            for address, limit in self._addresses.items()
            if limit.available(now, most=self._per_address) < self._per_address
        }

    def _step(self) -> None:
        for address, retries in list(self._waiting.items()):
            limit = self._limit(address)
            while retries and self._has_room(limit):
                # An address that is served is the last one the next time, and so is a connection.
                self._waiting[address] = self._waiting.pop(address)
                retry, _ = retries.popitem(last=False)
                retry()
            if not retries:
                del self._waiting[address]
        if self._waiting:
            self._later(_STEP_SECONDS, self._step)

    def _limit(self, address: str) -> RateLimit:
        limit = self._addresses.get(address)
        if limit is None:
            limit = self._addresses[address] = RateLimit(self._per_address, self._now())
        return limit

    def _has_room(self, limit: RateLimit) -> bool:
        now = self._now()
        return bool(limit.available(now, most=1)) and bool(self._all.available(now, most=1))
