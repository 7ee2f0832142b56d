"""Sessions, one class per protocol: they encode commands and decode events, without I/O."""

from penstock.client.sessions.base import Extras, Session
from penstock.client.sessions.factory import session_factory

__all__ = ["Extras", "Session", "session_factory"]
