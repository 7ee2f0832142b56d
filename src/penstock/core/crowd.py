"""The part of the event loop's time that is left to a crowd, while others use the loop."""

from typing import Final

from penstock.limits import CROWD_DEBT_SECONDS_MAX, CROWD_SECONDS_MAX, CROWD_SHARE

__all__ = ["CrowdTime"]

_NEVER: Final = float("-inf")
_ROUNDING_SECONDS: Final = 1e-6


class CrowdTime:
    """A token bucket of seconds: it fills by `share` of the time that passes.

    The time that the crowd does not get is not given to anyone: the loop sleeps, so that it is
    ready for others at once, and so is a processor.
    """

    def __init__(
        self,
        *,
        share: float = CROWD_SHARE,
        seconds_max: float = CROWD_SECONDS_MAX,
        debt_seconds_max: float = CROWD_DEBT_SECONDS_MAX,
    ) -> None:
        self._share = share
        self._seconds_max = seconds_max
        self._debt_seconds_max = debt_seconds_max
        self._left = seconds_max
        self._at = _NEVER

    def spend(self, now: float, seconds: float) -> None:
        """Count time that the crowd used; one long piece may exceed what was left."""
        self._fill(now)
        self._left = max(self._left - seconds, -self._debt_seconds_max)

    def wait_seconds(self, now: float) -> float:
        """Return the time until the crowd may use the loop again, 0 if it may now."""
        self._fill(now)
        return 0.0 if self._left > -_ROUNDING_SECONDS else -self._left / self._share

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self._left + (now - self._at) * self._share, self._seconds_max)
            self._at = now
