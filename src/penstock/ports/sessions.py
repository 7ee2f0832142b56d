"""Clients that may resume on any node of a log."""

from collections.abc import Callable
from typing import Protocol as Port

import msgspec

__all__ = ["KeptSession", "SessionStore"]


class KeptSession(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node of a client, and the positions of its subscriptions: offsets by partition.

    `connected` is whether it was connected there when `writer`, a node, wrote this; then the
    positions may be a few seconds old. With `claims`, the node asks the one that has the client to
    give it up; `handed_over` is the answer. `until_us` is when the client is forgotten.

    `claim` grows with each move of the client. A state with a lower claim is ignored: its node did
    not know of the last move. The claim is 0 in a state of an earlier version.
    """

    node: int
    writer: int
    positions: dict[str, dict[int, int]]
    connected: bool = False
    claims: bool = False
    handed_over: bool = False
    until_us: int = 0
    claim: int = 0


class SessionStore(Port):
    """Keeps clients that may resume, for all nodes. The event loop's thread calls it."""

    @property
    def node(self) -> int:
        """The number of this node."""

    def find(self, key: str, then: Callable[[KeptSession | None], None]) -> None:
        """Call `then` with the last state of a client on any node; None if there is none."""

    def put(self, key: str, session: KeptSession | None) -> None:
        """Write the state of a client, None to forget it; do not wait, and raise nothing."""
