"""Delays after wrong credentials, so that they cannot be guessed.

Failures are counted by address, not by name alone: otherwise an attacker could lock out any user.
All tables are bounded, and safe to use from several threads.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from penstock import limits
from penstock.server.networks import throttled_as

__all__ = ["GuessLimit", "PasswordThrottle"]

_DOUBLINGS_MAX: Final = 30


class PasswordThrottle:
    """Wrong passwords by address and user name: after some, each further one costs a delay."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        records_max: int = limits.LOGIN_RECORDS_MAX,
    ) -> None:
        self._clock = clock
        self._records_max = records_max
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def seconds_left(self, host: str, username: str) -> float:
        """Return the time until the next attempt is accepted, 0 if it is now."""
        with self._lock:
            failures, last = self._record((throttled_as(host), username))
        return max(last + _delay(failures) - self._clock(), 0.0)

    def failed(self, host: str, username: str) -> None:
        """Count a wrong password."""
        key = (throttled_as(host), username)
        with self._lock:
            failures, _ = self._record(key)
            self._records[key] = (failures + 1, self._clock())
            self._records.move_to_end(key)
            if len(self._records) > self._records_max:
                self._records.popitem(last=False)

    def succeeded(self, host: str, username: str) -> None:
        """Forget the failures of a user that has logged in."""
        with self._lock:
            self._records.pop((throttled_as(host), username), None)

    def _record(self, key: tuple[str, str]) -> tuple[int, float]:
        """Return failures and the time of the last one; forget old ones."""
        while self._records:
            oldest = next(iter(self._records))
            if self._clock() - self._records[oldest][1] < limits.LOGIN_MEMORY_SECONDS:
                break
            del self._records[oldest]
        return self._records.get(key, (0, 0.0))


def _delay(failures: int) -> float:
    """Return the seconds between a number of failures and the next attempt."""
    above = failures - limits.LOGIN_FAILURES_FREE
    if above < 0:
        return 0.0
    doubled = limits.LOGIN_DELAY_SECONDS * 2.0 ** min(above, _DOUBLINGS_MAX)
    return min(doubled, limits.LOGIN_DELAY_SECONDS_MAX)


class GuessLimit:
    """Different wrong tokens and keys by address; at GUESSES_MAX the address must wait.

    Credentials that were right from the same address before are accepted meanwhile: otherwise one
    client could lock out all others behind the same address. Comparing a token is cheap, so this
    bounds guesses, not work.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        records_max: int = limits.LOGIN_RECORDS_MAX,
    ) -> None:
        self._clock = clock
        self._records_max = records_max
        self._lock = threading.Lock()
        self._records: OrderedDict[str, tuple[float, set[bytes]]] = OrderedDict()
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def reached(self, host: str, digest: bytes) -> bool:
        """Return whether an address has made too many guesses, and this one was never right."""
        key = throttled_as(host)
        with self._lock:
            if len(self._guesses(key)) < limits.GUESSES_MAX:
                return False
            return (key, digest) not in self._right

    def succeeded(self, host: str, digest: bytes) -> None:
        """Remember that a token or key was right from an address, by its hash."""
        right = (throttled_as(host), digest)
        with self._lock:
            self._right[right] = None
            self._right.move_to_end(right)
            if len(self._right) > self._records_max:
                self._right.popitem(last=False)

    def failed(self, host: str, digest: bytes) -> None:
        """Count a wrong token or key, by its hash."""
        key = throttled_as(host)
        with self._lock:
            guesses = self._guesses(key)
            if len(guesses) < limits.GUESSES_MAX:
                guesses.add(digest[:8])
            if key not in self._records:
                self._records[key] = (self._clock(), guesses)
                if len(self._records) > self._records_max:
                    self._records.popitem(last=False)

    def _guesses(self, key: str) -> set[bytes]:
        """Return the guesses of an address; forget old ones."""
        while self._records:
            oldest = next(iter(self._records))
            if self._clock() - self._records[oldest][0] < limits.LOGIN_MEMORY_SECONDS:
                break
            del self._records[oldest]
        found = self._records.get(key)
        return set() if found is None else found[1]
