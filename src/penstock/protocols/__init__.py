"""The wire protocols: one declared value for each, and the registry of all of them."""

from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns, Source, load
from penstock.protocols.registry import FLIGHT, HTTP, PROTOCOLS, SOURCES, Registry

__all__ = [
    "FLIGHT",
    "HTTP",
    "PROTOCOLS",
    "SOURCES",
    "Carries",
    "Limit",
    "Protocol",
    "RefusalSigns",
    "Registry",
    "Source",
    "load",
]
