"""One session for each protocol: commands to bytes, bytes to events, and nothing else."""

from penstock.client.sessions.base import Extras, Session
from penstock.client.sessions.factory import session_factory

__all__ = ["Extras", "Session", "session_factory"]
