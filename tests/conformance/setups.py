"""The broker of each setup that a conformance case may require."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.conform import Setup
from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from tests.support.live import LiveBroker

PUBLISH, SUBSCRIBE = frozenset({Action.PUBLISH}), frozenset({Action.SUBSCRIBE})
FORBIDDEN = [
    Rule(allow=False, actions=PUBLISH, pattern="secret/#"),
    Rule(allow=False, actions=PUBLISH, pattern="channel/1"),
    Rule(allow=False, actions=SUBSCRIBE, pattern="hidden/#"),
]
CHANNEL_RULES = [
    Rule(allow=False, actions=PUBLISH, pattern="alarms"),
    Rule(allow=False, actions=SUBSCRIBE, pattern="audit"),
]
ALLOWED = [
    Rule(allow=True, actions=PUBLISH, pattern="out/#"),
    Rule(allow=True, actions=SUBSCRIBE, pattern="in/#"),
    Rule(allow=True, actions=frozenset(Action), pattern="both"),
]

OPTIONS: dict[Setup, dict[str, Any]] = {
    Setup.ALLOW_LIST: {"anonymous": Principal("guest", ALLOWED, default=False)},
    Setup.CHANNELS: {"anonymous": Principal("anyone", CHANNEL_RULES)},
    Setup.CREDENTIALS: {"anonymous": None},
    Setup.KEEPALIVE: {
        "frame_limits": {"fleximq_keepalive_interval_ms": 250},
        "herald_ping_seconds": 0.25,
    },
    Setup.NO_ECHO: {"echo": False},
    Setup.RATE: {"messages_per_second_max": 10},
    Setup.RULES: {"anonymous": Principal("guest", FORBIDDEN)},
    Setup.SHORT_HANDSHAKE: {"handshake_seconds_max": 0.5},
    Setup.STRICT: {"strict": True},
}
"""Options of the listener."""

SERVER: dict[Setup, Callable[[], dict[str, Any]]] = {
    Setup.CHANNELS: lambda: {"channels": {1: "alarms", 2: "audit", 3: "open"}},
    Setup.LOG: lambda: {"writer": MemoryLog(log_id=0x0190A3B4C5D6, partition=3)},
    Setup.ONE_SESSION: lambda: {"settings": BrokerSettings(sessions_max=1)},
    Setup.SUBSCRIPTIONS: lambda: {"settings": BrokerSettings(subscriptions_max=2)},
}
"""Arguments of the broker."""

CHANGES: dict[Setup, Callable[[LiveBroker], None]] = {
    Setup.REQUEST_TIMEOUT: lambda live: setattr(live.server.broker.requests, "seconds_max", 0.25),
}
"""Changes to the broker once it runs."""


@contextmanager
def broker_of(setup: Setup | None, protocol: Protocol | None) -> Iterator[LiveBroker]:
    """A live broker with this setup; its port serves one protocol, or all of them."""
    options: dict[str, Any] = {"protocol": protocol}
    arguments: dict[str, Any] = {}
    if setup is not None:
        options |= OPTIONS.get(setup, {})
        arguments = SERVER.get(setup, dict)()
    if setup is Setup.PINNED and protocol in {HERALD, LAMAMQ}:
        options["order"] = "big"
    with LiveBroker(options=GatewayOptions(**options), **arguments) as live:
        if setup in CHANGES:
            live.call(lambda: CHANGES[setup](live))
        yield live
