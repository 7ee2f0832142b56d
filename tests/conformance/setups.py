"""The broker of each setup that a conformance case may require."""

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from penstock.client.address import Address, parse_address
from penstock.conform import Setup
from penstock.core.access import Action, Principal, Rule
from penstock.core.broker import BrokerSettings
from penstock.gateway.options import GatewayOptions
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.memory import MemoryLog
from penstock.storage.session_numbers import SessionNumbers
from penstock.transport import addresses
from penstock.transport.stdio import Program
from tests.support import lamamq_bytes as lama
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
    Setup.SLOW_MIDDLEWARE: {"handshake_seconds_max": 0.5},
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
    Setup.REQUIRED_HOOKS: lambda live: live.server.broker.hooks.require(["guarded/#"]),
}
"""Changes to the broker once it runs."""


RELAY = """
import os, socket, sys, threading

def pass_on(read, write):
    while data := read(65_536):
        write(data)

with socket.create_server(("127.0.0.1", 0)) as server:
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(server.getsockname()[1]))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    link, _ = server.accept()
to_client = lambda: pass_on(lambda size: os.read(0, size), link.sendall)
threading.Thread(target=to_client, daemon=True).start()
pass_on(link.recv, lambda data: os.write(1, data))
"""
"""A program that passes on all bytes between its standard streams and one connection."""


@dataclasses.dataclass
class Served:
    """A live broker of a setup, where cases find it, and how they restart it."""

    live: LiveBroker
    url: str
    restart: Callable[[], Address] | None = None


@contextmanager
def broker_of(setup: Setup | None, protocol: Protocol | None) -> Iterator[Served]:
    """A live broker with this setup; its port serves one protocol, or all of them."""
    options: dict[str, Any] = {"protocol": protocol}
    arguments: dict[str, Any] = {}
    if setup is not None:
        options |= OPTIONS.get(setup, {})
        arguments = SERVER.get(setup, dict)()
    if setup is Setup.PINNED and protocol in {HERALD, LAMAMQ}:
        options["order"] = "big"
    with ExitStack() as stack:
        if setup in {Setup.HISTORY, Setup.RESTART}:
            arguments["data"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def start() -> LiveBroker:
            if setup is Setup.RESTART:
                arguments["numbers"] = SessionNumbers(arguments["data"])
            return LiveBroker(options=GatewayOptions(**options), **arguments).__enter__()

        served = Served(start(), "")
        stack.callback(lambda: served.live.__exit__(None, None, None))
        served.url = f"tcp://127.0.0.1:{served.live.address[1]}"
        if setup in CHANGES:
            served.live.call(lambda: CHANGES[setup](served.live))
        if setup in PLACES:
            served.url = PLACES[setup](served.live, stack)

        def restart() -> Address:
            served.live.__exit__(None, None, None)
            served.live = start()
            return parse_address(f"tcp://127.0.0.1:{served.live.address[1]}")

        if setup is Setup.RESTART:
            served.restart = restart
        yield served


def _udp_port(live: LiveBroker, _: ExitStack) -> str:
    """Open a UDP port of the same number and options; return the URL of the TCP port."""
    address = addresses.parse_address(f"udp://127.0.0.1:{live.address[1]}")
    live.run(lambda: live.server.listen(address, options=live.options))
    return f"tcp://127.0.0.1:{live.address[1]}"


def _web_port(live: LiveBroker, _: ExitStack) -> str:
    address = addresses.parse_address("ws://127.0.0.1:0/ws?protocol=fleximq")
    return f"ws://127.0.0.1:{live.run(lambda: live.server.listen(address)).port}/ws"


def _middleware(live: LiveBroker, stack: ExitStack) -> str:
    """Register a hook that is never answered; open a UDP port."""
    address = addresses.parse_address("tcp://127.0.0.1:0?protocol=lamamq")
    port = live.run(lambda: live.server.listen(address)).port
    place = dataclasses.make_dataclass("Place", ["address"])(("127.0.0.1", port))
    guard = stack.enter_context(lama.client(place, b"guard"))
    guard.request(lama.register(1, b"slow", lama.CONNECT, timeout_ms=5000))
    return _udp_port(live, stack)


def _relay(live: LiveBroker, stack: ExitStack) -> str:
    """Run a program; return the URL at which it waits for its client."""
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "port"
    program = Program("relay", (sys.executable, "-S", "-c", RELAY, str(file)))
    live.run(lambda: live.server.run_programs([program]))
    deadline = time.monotonic() + 10
    while not file.exists():
        assert time.monotonic() < deadline, "the program did not start"
        time.sleep(0.005)
    return f"tcp://127.0.0.1:{file.read_text()}"


PLACES: dict[Setup, Callable[[LiveBroker, ExitStack], str]] = {
    Setup.PROGRAM: _relay,
    Setup.SLOW_MIDDLEWARE: _middleware,
    Setup.UDP: _udp_port,
    Setup.WEBSOCKET: _web_port,
}
"""Work on the broker once it runs; returns the URL for its cases."""
