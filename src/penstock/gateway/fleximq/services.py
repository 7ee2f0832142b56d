"""Requests to client 1, the broker, by path.

Every answer is one MessagePack map. Lists are cut at their limits; `count` is the full number.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

from penstock.core.access import Action
from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.limits import FLEXIMQ_LISTING_BYTES_MAX, FLEXIMQ_LISTING_ENTRIES_MAX
from penstock.protocols import PROTOCOLS, Protocol

__all__ = ["SERVICES"]


def _topics(broker: Broker, session: Session) -> object:
    """Return the topics that the client may publish or subscribe to, oldest first."""
    table = broker.topics
    live = (number for number in range(len(table)) if table.is_live(number))
    names = (table.name(number) for number in islice(live, FLEXIMQ_LISTING_ENTRIES_MAX))
    may = session.principal.may
    allowed = (name for name in names if may(Action.SUBSCRIBE, name) or may(Action.PUBLISH, name))
    return {"count": table.live, "topics": list(_within_bytes(allowed))}


def _within_bytes(names: Iterable[str]) -> Iterable[str]:
    size = 0
    for name in names:
        size += len(name.encode())
        if size > FLEXIMQ_LISTING_BYTES_MAX:
            return
        yield name


def _clients(broker: Broker, session: Session) -> object:  # noqa: ARG001
    sessions: Iterable[Session] = islice(broker.sessions, FLEXIMQ_LISTING_ENTRIES_MAX)
    return {
        "count": len(broker.sessions),
        "clients": [
            {
                "client_id": client.number,
                "protocol": client.encoding.protocol.label,
                "subscriptions": len(client.subscriptions),
            }
            for client in sessions
        ],
    }


def _stats(broker: Broker, session: Session) -> object:  # noqa: ARG001
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
    }


def _by_label(counts: Counter[Protocol]) -> dict[str, int]:
    return {protocol.label: counts[protocol] for protocol in PROTOCOLS}


def _time(broker: Broker, session: Session) -> object:  # noqa: ARG001
    """Return milliseconds since the epoch, as in keep-alive."""
    return {"timestamp": broker.clock.now_us() // 1000}


SERVICES: Final[Mapping[str, Callable[[Broker, Session], object]]] = MappingProxyType(
    {"/topics": _topics, "/clients": _clients, "/stats": _stats, "/time": _time}
)
