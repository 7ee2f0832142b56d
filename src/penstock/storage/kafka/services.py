"""The services of all nodes, in the state topic: a record for each node and path."""

from collections.abc import Callable, Iterator

import msgspec
import structlog

from penstock.ports.services import KnownService, ServedPath
from penstock.storage.kafka.state import NODE, SERVICE, NodeState, StateTopic

__all__ = ["KafkaServices", "decode_service"]

log = structlog.get_logger("penstock.log")


class KafkaServices:
    """A `ports.ServiceStore` of a node; `post` runs work in the event loop's thread."""

    def __init__(
        self,
        state: StateTopic,
        post: Callable[[Callable[[], None]], None],
        *,
        node: int,
        process: str,
    ) -> None:
        self._state = state
        self._post = post
        self._node = node
        self._process = process

    def known(self) -> Iterator[KnownService]:
        """See ports.ServiceStore."""
        for key, value in self._state.values(SERVICE).items():
            found = decode_service(key, value)
            if found is not None and found.node != self._node:
                yield found

    def put(self, name: str, *, servers: int, subscribers: int, failed: Callable[[], None]) -> None:
        """See ports.ServiceStore."""
        value = None
        if servers or subscribers:
            value = msgspec.json.encode(ServedPath(self._process, servers, subscribers))
        self._state.send(f"{SERVICE}{self._node}/{name}", value, failed=lambda: self._post(failed))

    def is_running(self, node: int, process: str) -> bool:
        """See ports.ServiceStore: another process has replaced it, or it has not reported."""
        state = self._state.load(f"{NODE}{node}", NodeState)
        return state is not None and state.owner == process and self._state.is_running(node)

    def clear(self) -> None:
        """Remove all services of this node: it begins, or ends."""
        own = f"{self._node}/"
        try:
            for key in self._state.values(SERVICE):
                if key.startswith(own):
                    self._state.send(SERVICE + key, None)
        except OSError as error:  # they count as none: their process does not run
            log.warning("services not removed", error=str(error))


def decode_service(key: str, value: bytes | None) -> KnownService | None:
    """Return a service from its record, whose key is without the prefix; None if it is invalid."""
    node, _, name = key.partition("/")
    if not node.isdecimal() or not name:
        return None
    if value is None:
        return KnownService(int(node), name, None)
    try:
        return KnownService(int(node), name, msgspec.json.decode(value, type=ServedPath))
    except ValueError:
        return None
