"""Passwords that were verified in the last minute, so that each request need not hash again.

A page that asks every second would otherwise cost the broker a password hash a second. Only a keyed
digest is kept, with a key of this process.
"""

import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from penstock.limits import PASSWORD_VERIFIED_SECONDS, PASSWORDS_VERIFIED_MAX

__all__ = ["VerifiedPasswords"]


class VerifiedPasswords:
    """Remembers verified passwords by address, user name and stored hash.

    A password that was changed has another hash, and is verified again. At the limit the oldest
    entry is forgotten.
    """

    def __init__(
        self,
        *,
        seconds_max: float = PASSWORD_VERIFIED_SECONDS,
        kept_max: int = PASSWORDS_VERIFIED_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_max = seconds_max
        self._kept_max = kept_max
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._ends: OrderedDict[bytes, float] = OrderedDict()

    def digest(self, host: str, username: str, *, encoded: str, password: bytes) -> bytes:
        """Return what stands for a password of a user whose stored hash is `encoded`."""
        parts = (
            host.encode(),
            username.encode("utf-8", "surrogatepass"),
            encoded.encode(),
            password,
        )
        whole = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return hmac.digest(self._secret, whole, "sha256")

    def holds(self, digest: bytes) -> bool:
        """Return whether a password was verified in the last `seconds_max`."""
        ends = self._ends.get(digest)
        if ends is None:
            return False
        if ends > self._clock():
            return True
        del self._ends[digest]
        return False

    def add(self, digest: bytes) -> None:
        """Remember a password that was verified now."""
        self._ends.pop(digest, None)
        self._ends[digest] = self._clock() + self._seconds_max
        if len(self._ends) > self._kept_max:
            self._ends.popitem(last=False)
