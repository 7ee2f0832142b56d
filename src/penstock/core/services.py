"""Services by name: which clients answer the requests to a path.

A client registers a path, and any number of others may register the same one. A request goes to
the server with the fewest requests without an answer; of equal servers, to the one that was chosen
longest ago. A server whose right to serve the path was taken away is passed over.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from penstock.core.access import Action, Principal, is_allowed, path_name
from penstock.core.remote_services import RemoteServices
from penstock.core.requests import Requests
from penstock.core.sessions import Session
from penstock.errors import InvalidServicePath, TooManyServices
from penstock.limits import SERVICE_PATH_BYTES_MAX, SERVICE_SERVERS_MAX, SERVICES_PER_CLIENT_MAX

__all__ = ["Server", "Services", "may_see"]


class Server(NamedTuple):
    """A client that serves a path, and the path as it has registered it."""

    session: Session
    path: str


class Services:
    """The registered services of one broker. `/price` and `price` are the same path.

    `elsewhere` are those of other nodes.
    """

    def __init__(self, requests: Requests, elsewhere: RemoteServices) -> None:
        self._requests = requests
        self.elsewhere = elsewhere
        self.pending_elsewhere: Callable[[int], int] = lambda _: 0
        """Returns how many requests of other nodes await an answer of a client."""
        self._servers: dict[str, dict[Session, str]] = {}  # by name, longest unused first
        self._names: dict[Session, dict[str, None]] = {}
        self.subscriber_left: Callable[[], None] = _do_nothing
        """Called when a client that serves a path by a topic has disconnected, of any node."""
        self.client_left: Callable[[int], None] = _ignore
        """Called with the number of each client that has disconnected."""
        self.dispatched = 0
        """Requests that were given to a server."""
        self.unserved = 0
        """Requests that found no server."""
        self.invalid = 0
        """Messages of service topics that could not be read, or answered."""

    def __len__(self) -> int:
        """Return the number of paths that have a server."""
        return len(self._servers)

    def __iter__(self) -> Iterator[str]:
        """Iterate over a copy of the names, see `path_name`."""
        return iter(list(self._servers))

    def register(self, session: Session, path: str) -> bool:
        """Let a client serve a path; return False if it does so already.

        The right to serve it is checked before. Raise InvalidServicePath or TooManyServices.
        """
        name = path_name(path)
        if not path.strip("/"):
            raise InvalidServicePath("it is empty")
        if len(path.encode()) > SERVICE_PATH_BYTES_MAX:
            raise InvalidServicePath(f"it has more than {SERVICE_PATH_BYTES_MAX} bytes")
        names = self._names.get(session, {})
        if name in names:
            return False
        if len(names) >= SERVICES_PER_CLIENT_MAX:
            raise TooManyServices(SERVICES_PER_CLIENT_MAX, "services of this client")
        servers = self._servers.get(name, {})
        if len(servers) >= SERVICE_SERVERS_MAX:
            raise TooManyServices(SERVICE_SERVERS_MAX, "servers of this path")
        self._servers.setdefault(name, servers)[session] = path
        self._names.setdefault(session, names)[name] = None
        self.elsewhere.registered(name, len(servers))
        return True

    def withdraw(self, session: Session, path: str) -> bool:
        """End the service of a client; return False if it does not serve the path."""
        name = path_name(path)
        names = self._names.get(session, {})
        if name not in names:
            return False
        del names[name]
        if not names:
            del self._names[session]
        self._drop(session, name)
        return True

    def leave(self, session: Session) -> None:
        """End all services of a client that disconnects."""
        for name in self._names.pop(session, ()):
            self._drop(session, name)
        self.client_left(session.number)

    def choose(self, path: str) -> Server | None:
        """Return the least busy server of a path, None if it has none."""
        name = path_name(path)
        servers = self._servers.get(name, {})
        able = self.servers(name)
        if not able:
            return None
        chosen = min(able, key=self._pending_to)
        servers[chosen] = servers.pop(chosen)  # the last of its equals from now on
        return Server(chosen, servers[chosen])

    def servers(self, name: str) -> list[Session]:
        """Return the servers of a path that may serve it, by its name."""
        return [
            each
            for each in self._servers.get(name, ())
            if is_allowed(each.principal, Action.SERVE, name)
        ]

    def choose_node(self, path: str) -> int | None:
        """Return another node with servers of a path, the least busy; None if there is none."""
        return self.elsewhere.choose(path_name(path))

    def pending(self, servers: Iterable[Session]) -> int:
        """Return the number of requests that the given servers have not answered."""
        return sum(map(self._pending_to, servers))

    def _pending_to(self, server: Session) -> int:
        return self._requests.pending_to(server.number) + self.pending_elsewhere(server.number)

    def _drop(self, session: Session, name: str) -> None:
        servers = self._servers[name]
        del servers[session]
        if not servers:
            del self._servers[name]
        self.elsewhere.registered(name, len(servers))


def may_see(principal: Principal, name: str) -> bool:
    """Return whether a principal may ask or serve a path, so that lists show it."""
    return is_allowed(principal, Action.REQUEST, name) or is_allowed(principal, Action.SERVE, name)


def _do_nothing() -> None:
    pass


def _ignore(number: int) -> None:
    pass
