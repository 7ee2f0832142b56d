"""How the broker keeps the states of its consumer groups, without blocking."""

from collections.abc import Callable
from typing import Protocol as Port

from penstock.ports.storage import GroupState

__all__ = ["GroupStore"]


class GroupStore(Port):
    """Loads and stores states of consumer groups. The event loop's thread calls and is called back.

    Calls take effect in their order.
    """

    is_shared: bool
    """Whether other nodes see the states too. One node at a time may have members of a group."""

    def load(self, group: str, then: Callable[[GroupState | Exception | None], None]) -> None:
        """Call `then` with the state of a group, None if it has none, or with what went wrong."""

    def save(self, state: GroupState, then: Callable[[Exception | None], None]) -> None:
        """Store a state; call `then` when it is on disk, or with what went wrong.

        The group's count of lost offsets grows by `lost`, and partitions that are not named keep
        their offsets. It is GroupElsewhere if another node has members of the group.
        """

    def forget(self, group: str, then: Callable[[Exception | None], None]) -> None:
        """Remove a group."""
