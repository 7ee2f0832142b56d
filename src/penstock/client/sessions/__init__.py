"""Sessions, one class per protocol: they encode commands and decode events, without I/O."""

from penstock.client.sessions.base import Extras, Session
from penstock.client.sessions.fleximq import FleximqSession
from penstock.client.sessions.herald import HeraldSession
from penstock.client.sessions.lamamq import LamamqSession
from penstock.client.sessions.rheos import Rheos1Session, Rheos2Session

__all__ = [
    "Extras",
    "FleximqSession",
    "HeraldSession",
    "LamamqSession",
    "Rheos1Session",
    "Rheos2Session",
    "Session",
]
