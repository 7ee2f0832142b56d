"""Requests to client 1, the broker, by path.

Every answer is one MessagePack map. Lists are cut at their limits; `count` is the full number.
Lists are read in steps, so that the event loop serves others in between. As long as nothing has
changed, a list is given again to later requests of the same principal, for FLEXIMQ_LISTING_SECONDS.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.core.access import Action, Principal, is_allowed
from penstock.core.broker import Broker
from penstock.core.services import may_see
from penstock.core.sessions import Session
from penstock.limits import (
    FLEXIMQ_LISTING_BYTES_MAX,
    FLEXIMQ_LISTING_ENTRIES_MAX,
    FLEXIMQ_LISTING_SECONDS,
    FLEXIMQ_LISTING_STEP,
    FLEXIMQ_LISTINGS_MAX,
)
from penstock.protocols import PROTOCOLS, Protocol
from penstock.wire import messagepack

__all__ = ["ADMINISTRATIVE", "SERVICES", "Listings"]

Answer: TypeAlias = Generator[None, None, object]
"""Reads an answer in steps and returns it."""


class _Listing:
    """An answer that is being read, or was read at a time."""

    __slots__ = ("payload", "read_at", "waiting")

    def __init__(self) -> None:
        self.payload: bytes | None = None
        self.read_at = 0.0
        self.waiting: list[Callable[[bytes], None]] = []


class Listings:
    """Answers of the services, by path and principal."""

    def __init__(self) -> None:
        self._listings: dict[tuple[str, Principal, object], _Listing] = {}

    def give(
        self, broker: Broker, session: Session, path: str, then: Callable[[bytes], None]
    ) -> None:
        """Call `then` with the encoded answer of a service, now or in a later turn."""
        # With the rights: what a reload forbids is not given again.
        key = (path, session.principal, (session.principal.rights, _version(broker, path)))
        found = self._listings.get(key)
        now = broker.clock.monotonic()
        if found is not None and found.payload is not None:
            if path in _LISTS and now - found.read_at < FLEXIMQ_LISTING_SECONDS:
                then(found.payload)
                return
            found = None
        if found is None:
            self._listings.pop(key, None)
            while len(self._listings) >= FLEXIMQ_LISTINGS_MAX:
                del self._listings[next(iter(self._listings))]
            found = self._listings[key] = _Listing()
            found.waiting.append(then)
            broker.slices.start(self._read(broker, session, path, found))
        else:
            found.waiting.append(then)

    def _read(
        self, broker: Broker, session: Session, path: str, listing: _Listing
    ) -> Generator[None, None, None]:
        rights = None
        while rights is not session.principal.rights:  # they may change while it is read
            rights = session.principal.rights
            answer = yield from SERVICES[path](broker, session)
        payload = listing.payload = messagepack.encode(answer)
        listing.read_at = broker.clock.monotonic()
        waiting, listing.waiting = listing.waiting, []
        for then in waiting:
            then(payload)
            yield


def _version(broker: Broker, path: str) -> object:
    """Return a value that is another one after each change that a list shows."""
    if path == "/topics":
        return len(broker.topics), broker.topics.removals
    opened = sum(broker.counters.sessions_opened.values())
    return (opened, len(broker.sessions), broker.router.changes)


def _topics(broker: Broker, session: Session) -> Answer:
    """Return the topics that the client may publish or subscribe to, oldest first."""
    table = broker.topics
    principal = session.principal
    names = []
    size = 0
    shown = 0
    for number in range(len(table)):
        if not (number + 1) % FLEXIMQ_LISTING_STEP:
            yield
        if not table.is_live(number):
            continue
        shown += 1
        if shown > FLEXIMQ_LISTING_ENTRIES_MAX:
            break
        name = table.name(number)
        if is_allowed(principal, Action.SUBSCRIBE, name) or is_allowed(
            principal, Action.PUBLISH, name
        ):
            size += len(name.encode())
            if size > FLEXIMQ_LISTING_BYTES_MAX:
                break
            names.append(name)
    return {"count": table.live, "topics": names}


def _clients(broker: Broker, session: Session) -> Answer:  # noqa: ARG001
    clients = []
    for client in islice(broker.sessions, FLEXIMQ_LISTING_ENTRIES_MAX):
        clients.append(
            {
                "client_id": client.number,
                "protocol": client.encoding.protocol.label,
                "subscriptions": len(client.subscriptions),
            }
        )
        if not len(clients) % FLEXIMQ_LISTING_STEP:
            yield
    return {"count": len(broker.sessions), "clients": clients}


def _services(broker: Broker, session: Session) -> Answer:
    """Return the services that the client may ask or serve; `nodes` if there may be several."""
    principal = session.principal
    services = broker.services
    elsewhere = services.elsewhere
    names = dict.fromkeys(services)
    for seen, name in enumerate(elsewhere, 1):
        if name not in names and elsewhere.nodes(name):
            names[name] = None
        if not seen % FLEXIMQ_LISTING_STEP:
            yield
    found = []
    size = 0
    work = 0  # since the last step
    for seen, name in enumerate(names, 1):
        work += 1
        if work >= FLEXIMQ_LISTING_STEP:
            work = 0
            yield
        if seen > FLEXIMQ_LISTING_ENTRIES_MAX or size > FLEXIMQ_LISTING_BYTES_MAX:
            break
        if not may_see(principal, name):
            continue
        able = services.servers(name)
        servers = len(able)
        work += servers
        nodes = {node: each.servers for node, each in elsewhere.nodes(name).items()}
        each: dict[str, object] = {
            "path": f"/{name}",
            "servers": servers + sum(nodes.values()),
            "pending": services.pending(able),
        }
        if elsewhere.are_shared:
            own = {broker.log.partition} if servers else set()
            each["nodes"] = sorted(own | nodes.keys())
        found.append(each)
        size += len(name.encode())
    return {"count": len(names), "services": found}


def _stats(broker: Broker, session: Session) -> Answer:  # noqa: ARG001
    yield from ()
    counters = broker.counters
    return {
        "clients": len(broker.sessions),
        "topics": broker.topics.live,
        "requests_pending": len(broker.requests),
        "sessions_opened": _by_label(counters.sessions_opened),
        "messages_received": _by_label(counters.messages_received),
        "messages_sent": _by_label(counters.messages_sent),
        "messages_dropped": _by_label(counters.messages_dropped),
        "messages_undeliverable": _by_label(counters.messages_undeliverable),
        "frames_rejected": _by_label(counters.frames_rejected),
        "loop_stalls": broker.stalls.count,
        "loop_stall_seconds_max": broker.stalls.seconds_max,
    }


def _by_label(counts: Counter[Protocol]) -> dict[str, int]:
    return {protocol.label: counts[protocol] for protocol in PROTOCOLS}


def _time(broker: Broker, session: Session) -> Answer:  # noqa: ARG001
    """Return milliseconds since the epoch, as in keep-alive."""
    yield from ()
    return {"timestamp": broker.clock.now_us() // 1000}


SERVICES: Final[Mapping[str, Callable[[Broker, Session], Answer]]] = MappingProxyType(
    {
        "/topics": _topics,
        "/clients": _clients,
        "/services": _services,
        "/stats": _stats,
        "/time": _time,
    }
)
ADMINISTRATIVE: Final[Mapping[str, str]] = MappingProxyType(
    {"/clients": "clients", "/stats": "stats"}
)
"""Paths that need the right to administer, with the name that rules match."""
_LISTS: Final = frozenset({"/topics", "/clients"})
"""Answers that take time. The others are out of date at once."""
