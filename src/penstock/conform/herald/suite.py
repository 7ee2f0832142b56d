"""The suite of herald."""

from typing import Final

from penstock.conform.case import Suite
from penstock.conform.herald import channels, datagrams, errors, handshakes, sessions
from penstock.conform.herald.peer import publisher

__all__ = ["SUITE"]

SUITE: Final = Suite(
    "herald",
    (
        *handshakes.cases.cases(),
        *channels.cases.cases(),
        *sessions.cases.cases(),
        *errors.cases.cases(),
        *datagrams.cases.cases(),
    ),
    publisher,
)
