"""The suite of LamaMQ."""

from typing import Final

from penstock.conform.case import Suite
from penstock.conform.lamamq import (
    faults,
    forwards,
    handshakes,
    hook_calls,
    hook_events,
    pushes,
    subscriptions,
)
from penstock.conform.lamamq.peer import enter

__all__ = ["SUITE"]

SUITE: Final = Suite(
    "lamamq",
    (
        *handshakes.cases.cases(),
        *pushes.cases.cases(),
        *faults.cases.cases(),
        *forwards.cases.cases(),
        *subscriptions.cases.cases(),
        *hook_calls.cases.cases(),
        *hook_events.cases.cases(),
    ),
    enter,
)
