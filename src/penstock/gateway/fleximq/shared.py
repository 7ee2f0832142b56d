"""What all fleximq connections of one broker have in common."""

from weakref import WeakKeyDictionary

from penstock._kernels.fleximq import HeaderCache
from penstock.core.broker import Broker
from penstock.limits import FLEXIMQ_KEEPALIVE_SECONDS
from penstock.wire import fleximq

__all__ = ["Shared", "shared_by"]


class Shared:
    """The headers that were parsed before, and the settings of keep-alive.

    A changed `keepalive_seconds` holds for clients that join from then on.
    """

    def __init__(self, *, keepalive_seconds: float = FLEXIMQ_KEEPALIVE_SECONDS) -> None:
        self.headers = HeaderCache(fleximq.publication)
        self.keepalive_seconds = keepalive_seconds


# Headers stand for the topic ids of one broker, so each broker has its own. `core` cannot keep
# them: it does not know the codec that parses a header.
_OF_BROKER: WeakKeyDictionary[Broker, Shared] = WeakKeyDictionary()


def shared_by(broker: Broker) -> Shared:
    """Return what the fleximq connections of `broker` share, made when it is first asked for."""
    shared = _OF_BROKER.get(broker)
    if shared is None:
        shared = _OF_BROKER[broker] = Shared()
    return shared
