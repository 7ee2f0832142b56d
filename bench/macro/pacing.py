"""Waiting by the clock in load generators, as exactly as the system can.

Linux wakes a thread that sleeps up to 50 µs late, its timer slack. That would be added to all
latencies alike, and pull the ratios of two brokers to one.
"""

import contextlib
import ctypes
import time
from collections.abc import Iterator
from typing import Final

__all__ = ["SLACK_NS_MIN", "exact_sleep", "wait_until"]

SET_TIMER_SLACK: Final = 29
GET_TIMER_SLACK: Final = 30
"""Operations of prctl(2), as in <linux/prctl.h>."""
SLACK_NS_MIN: Final = 1
"""The least timer slack; 0 stands for the default."""


@contextlib.contextmanager
def exact_sleep() -> Iterator[None]:
    """Give the calling thread the least timer slack, and its former one afterwards.

    Processes that it starts inherit it: start no broker meanwhile.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = prctl(GET_TIMER_SLACK, 0, 0, 0, 0)
    _set_slack(prctl, SLACK_NS_MIN)
    try:
        yield
    finally:
        _set_slack(prctl, before)


def _set_slack(prctl: "ctypes._NamedFuncPointer", nanoseconds: int) -> None:
    if prctl(SET_TIMER_SLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "the timer slack cannot be set")


def wait_until(due: float) -> None:
    """Sleep until a time of `time.monotonic`, if it is not over."""
    if (seconds := due - time.monotonic()) > 0:
        time.sleep(seconds)
