"""Rates of HTTP callers: requests without credentials, and messages that they publish."""

import math
import time
from collections import OrderedDict

from penstock.core.rates import RateLimit
from penstock.limits import HTTP_CALLERS_MAX
from penstock.server.http.errors import ApiError

__all__ = ["CallerRates"]


class CallerRates:
    """A rate limit for each caller, of whom at most HTTP_CALLERS_MAX are remembered."""

    def __init__(self, per_second: int, *, code: str, noun: str) -> None:
        """`code` and `noun` are for the error; the noun is what is counted."""
        self._per_second = per_second
        self._code = code
        self._noun = noun
        self._limits: OrderedDict[str, RateLimit] = OrderedDict()

    def take(self, caller: str) -> None:
        """Count one of a caller; raise ApiError with status 429 above its rate."""
        limit = self._limits.pop(caller, None)
        now = time.monotonic()
        if limit is None:
            if len(self._limits) >= HTTP_CALLERS_MAX:
                self._limits.popitem(last=False)
            limit = RateLimit(self._per_second, now)
        self._limits[caller] = limit
        if not limit.available(now, most=1):
            seconds = max(1, math.ceil(limit.wait_seconds()))
            message = (
                f"more than {self._per_second} {self._noun} in a second; "
                f"wait {seconds} s, then ask again"
            )
            raise ApiError(429, self._code, message, retry_seconds=seconds)
        limit.take(1)
