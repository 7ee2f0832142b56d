"""Services by name that the clients of several nodes serve."""

from collections.abc import Callable, Iterator
from typing import NamedTuple
from typing import Protocol as Port

import msgspec

__all__ = ["KnownService", "ServedPath", "ServiceStore"]


class ServedPath(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many clients of a node serve a path, as `process` has written it.

    `servers` have registered the path, `subscribers` subscribe to its topic.
    """

    process: str
    servers: int = 0
    subscribers: int = 0


class KnownService(NamedTuple):
    """A path that clients of a node serve; None if they do not any more."""

    node: int
    name: str
    served: ServedPath | None


class ServiceStore(Port):
    """Tells all nodes which paths are served where. The event loop's thread calls it."""

    def known(self) -> Iterator[KnownService]:
        """Yield the services of other nodes, as far as they were read when the log was opened."""

    def put(self, name: str, *, servers: int, subscribers: int, failed: Callable[[], None]) -> None:
        """Write how many clients of this node serve a path; do not wait.

        Raise OSError if it cannot be written now; `failed` is called if that turns out later.
        """

    def is_running(self, node: int, process: str) -> bool:
        """Return whether the process still has the node, as far as is known."""
