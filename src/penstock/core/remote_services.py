"""Services by name that clients of other nodes serve.

Each node writes, for each path, how many of its clients serve it. A request that finds no server on
its own node goes to another node as a whole, and that one gives it to its least busy server. So a
node need not know the clients of others. The services of a node that does not run count as none.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import structlog

from penstock.core.requests import Requests, node_target
from penstock.core.timers import Timers
from penstock.errors import InvalidPattern
from penstock.limits import SERVICE_SHARE_SECONDS
from penstock.patterns import PatternTree, canonical_pattern
from penstock.ports.services import KnownService, ServedPath, ServiceStore
from penstock.service_messages import path_of_requests

__all__ = ["RemoteServices"]

log = structlog.get_logger("penstock.services")

_NONE: Final = (0, 0)


class RemoteServices:
    """The services of other nodes, and what other nodes are told of those of this one.

    Without a store, this is the only node.
    """

    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers
        self._store: ServiceStore | None = None
        self._servers: dict[str, int] = {}  # of this node, by name
        self._subscribers: Counter[str] = Counter()
        self._written: dict[str, tuple[int, int]] = {}
        self._unwritten: dict[str, None] = {}
        self._armed = False
        self._known: dict[str, dict[int, ServedPath]] = {}  # of other nodes, longest unused first
        self._wildcards: PatternTree[dict[int, ServedPath]] = PatternTree()

    def share(self, store: ServiceStore) -> None:
        """Tell other nodes of the services of this one from now on, and take theirs."""
        self._store = store
        for name in self._servers:
            self._tell(name)
        for each in store.known():
            self.service_changed(each)

    @property
    def are_shared(self) -> bool:
        """Whether there may be other nodes."""
        return self._store is not None

    # --- Services of this node --------------------------------------------------------------------

    def registered(self, name: str, servers: int) -> None:
        """Take note of the number of clients that have registered a path."""
        if servers:
            self._servers[name] = servers
        else:
            self._servers.pop(name, None)
        self._tell(name)

    def subscribed(self, pattern: str, change: int) -> None:
        """Count a subscription that began or ended, if it is to the request topic of a path."""
        path = path_of_requests(pattern)
        if path:
            name = canonical_pattern(path).text
            self._subscribers[name] += change
            if not self._subscribers[name]:
                del self._subscribers[name]
            self._tell(name)

    def _counts(self, name: str) -> tuple[int, int]:
        return self._servers.get(name, 0), self._subscribers[name]

    def _tell(self, name: str) -> None:
        """Write the counts of a path soon, if other nodes exist that do not have them."""
        if self._store is None or self._counts(name) == self._written.get(name, _NONE):
            self._unwritten.pop(name, None)
            return
        self._unwritten[name] = None
        if not self._armed:
            self._armed = True
            self._timers.after(SERVICE_SHARE_SECONDS, self._write)

    def _write(self) -> None:
        """Write what has changed; one change of many in a short time."""
        self._armed = False
        unwritten, self._unwritten = self._unwritten, {}
        if self._store is not None:
            for name in unwritten:
                self._put(self._store, name)

    def _put(self, store: ServiceStore, name: str) -> None:
        counts = self._counts(name)

        def failed() -> None:
            self._written[name] = (-1, -1)  # not known
            self._tell(name)

        try:
            store.put(name, servers=counts[0], subscribers=counts[1], failed=failed)
        except OSError as error:
            log.warning("service not shared", path=name[:200], error=str(error))
            self._tell(name)
            return
        if counts == _NONE:
            self._written.pop(name, None)
        else:
            self._written[name] = counts

    # --- Services of other nodes ------------------------------------------------------------------

    def service_changed(self, change: KnownService) -> None:
        """Take what another node has written."""
        try:
            pattern = canonical_pattern(change.name)
        except InvalidPattern as error:
            log.warning("service not taken", node=change.node, error=str(error))
            return
        nodes = self._known.get(pattern.text)
        if change.served is not None:
            if nodes is None:
                nodes = self._known[pattern.text] = {}
                if pattern.levels is not None:
                    self._wildcards.add(pattern, nodes)
            nodes[change.node] = change.served
        elif nodes is not None:
            nodes.pop(change.node, None)
            if not nodes:
                del self._known[pattern.text]
                if pattern.levels is not None:
                    self._wildcards.remove(pattern, nodes)

    def __iter__(self) -> Iterator[str]:
        """Iterate over a copy of the names of paths, also those of nodes that do not run."""
        return iter(list(self._known))

    def known(self, name: str) -> Mapping[int, ServedPath]:
        """Return the nodes that have written that they serve a path, also those that are gone."""
        return self._known.get(name, {})

    def nodes(self, name: str) -> dict[int, ServedPath]:
        """Return the running nodes whose clients serve a path, by its name or by a wildcard."""
        store = self._store
        if store is None or not self._known:
            return {}
        own = self._known.get(name, {})
        found = {
            node: served for node, served in own.items() if store.is_running(node, served.process)
        }
        for nodes in self._wildcards.find(name):
            for node, served in () if nodes is own else nodes.items():
                if served.subscribers and store.is_running(node, served.process):
                    before = found.get(node, ServedPath(served.process))
                    subscribers = before.subscribers + served.subscribers
                    found[node] = ServedPath(served.process, before.servers, subscribers)
        return found

    def choose(self, name: str) -> int | None:
        """Return the node whose servers of a path are the least busy; None if there is none.

        Only the requests of this node count; of equal nodes, the one that was chosen longest ago.
        """
        able = {node: each.servers for node, each in self.nodes(name).items() if each.servers}
        if not able:
            return None
        chosen = min(able, key=lambda node: self._pending(node) / able[node])
        nodes = self._known[name]
        nodes[chosen] = nodes.pop(chosen)  # the last of its equals from now on
        return chosen

    def _pending(self, node: int) -> int:
        return self._requests.pending_to(node_target(node))

    def has_subscriber(self, name: str) -> bool:
        """Return whether a client of another node subscribes to the topic of a path."""
        return any(each.subscribers for each in self.nodes(name).values())
