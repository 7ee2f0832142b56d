"""Sessions for a client's connections, one after the other, with the same identity."""

import secrets
import time
from collections.abc import Callable

from penstock.client.options import Credentials
from penstock.client.sessions import (
    FleximqSession,
    HeraldSession,
    LamamqSession,
    Rheos1Session,
    Rheos2Session,
    Session,
)
from penstock.client.sessions.rheos import rheos_client_id
from penstock.model import Protocol

__all__ = ["session_factory"]


def session_factory(protocol: Protocol, credentials: Credentials) -> Callable[[], Session]:
    """Return what makes the session of each connection; without a name all share a random one."""
    name = credentials.name or f"penstock-{secrets.token_hex(6)}"
    client_id = rheos_client_id(credentials.name)
    match protocol:
        case Protocol.HERALD:
            return lambda: HeraldSession(name)
        case Protocol.LAMAMQ:
            return lambda: LamamqSession(name, credentials.key, _now)
        case Protocol.FLEXIMQ:
            return lambda: FleximqSession(credentials, _now_ms)
        case Protocol.RHEOS1:
            return lambda: Rheos1Session(client_id)
        case Protocol.RHEOS2:
            return lambda: Rheos2Session(client_id)


def _now() -> int:
    return int(time.time())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
