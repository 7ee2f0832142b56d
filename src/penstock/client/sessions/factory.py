"""Look-up of the sessions of a protocol."""

from collections.abc import Callable

from penstock.client.options import Credentials
from penstock.client.sessions.base import Session
from penstock.protocols import Protocol, load

__all__ = ["session_factory"]


def session_factory(protocol: Protocol, credentials: Credentials) -> Callable[[], Session]:
    """Return a factory of the sessions of a client; all have the same identity."""
    sessions: Callable[[Credentials], Callable[[], Session]] = load(protocol.client)
    return sessions(credentials)
