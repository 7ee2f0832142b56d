"""Fuzz a live broker through its sockets: `python -m tests.fuzz.sockets [--seconds N] [--seed N]`.

Attackers of every protocol send mutated, cut and garbled streams and leave in every way there is.
Meanwhile witnesses of every protocol publish to and hear from each other: nothing of theirs may be
lost, doubled or out of order. Nothing may fail inside the broker, and nothing of anybody may be
left in it when all are gone. Exit codes: 0 nothing found, 1 something found.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import random
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from penstock.core.access import Action, Principal, Rule
from penstock.gateway.options import GatewayOptions
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.lamamq import LAMAMQ
from penstock.service_messages import REPLY_PREFIX, REQUEST_PREFIX
from penstock.wire import fleximq
from penstock.wire.fleximq import MessageType
from tests.fuzz.inputs import load
from tests.fuzz.mutate import CHANGES
from tests.sim.clients import CLIENTS, FleximqClient, SimulatedClient
from tests.support import fleximq_bytes, herald_bytes, lamamq_bytes
from tests.support.live import LiveBroker

CHANNEL = 251
"""Where witnesses meet; attackers may not go there."""
TOKEN = b"witness:"
SECONDS_MAX = 30.0
ATTACKERS_MAX = 40
ORDERS: dict[Protocol, ByteOrder] = {FLEXIMQ: "big", LAMAMQ: "big"}


class FleximqWitness(FleximqClient):
    """Attackers can reach every fleximq client by its number; what they say there is nothing."""

    def answered(self, packet: fleximq.Message) -> None:
        if not self.ready or packet.type is MessageType.PING:
            super().answered(packet)


KINDS = {kind.protocol: kind for kind in CLIENTS} | {FLEXIMQ: FleximqWitness}


# --- What is left ---------------------------------------------------------------------------------


OWN_PATTERNS = {f"{REQUEST_PREFIX}#", f"{REPLY_PREFIX}broker/0"}
"""What the broker itself subscribes to, the first of them with a wildcard."""


def values_in(node: Any) -> int:
    """Count the values at a node of a pattern tree, and below it."""
    here = (node.here is not None) + (node.rest is not None)
    return here + sum(map(values_in, node.below.values()))


def leftovers(broker: LiveBroker) -> dict[str, int]:
    """All that a broker without clients must not hold, where it holds any of it."""

    def count() -> dict[str, int]:
        inside = broker.server.broker
        router = inside.router
        counts = {
            "sessions": len(inside.sessions),
            "connections": sum(each.connections for each in broker.server._listeners),
            "patterns": len(router._patterns.keys() - OWN_PATTERNS),
            "wildcards": values_in(router._wildcards.root) - 1,
            "routes": sum(route is not None for route in router._routes) - 1,
            "routed topics": sum(map(bool, router.route_of_topic)),
            "requests": len(inside.requests)
            + len(inside.requests._by_requester)
            + len(inside.requests._by_target),
            "hooks": sum(each.middleware is not None for each in inside.hooks._by_name.values()),
            "hook calls": len(inside.hooks.calls._hooks),
            "answers for the disk": len(inside._awaiting_answers),
            "rows": len(inside.batch),
        }
        return {name: number for name, number in counts.items() if number}

    found: dict[str, int] = broker.call(count)
    return found


def assert_nothing_is_left(broker: LiveBroker) -> None:
    """Wait until nothing is."""
    until(lambda: not leftovers(broker), lambda: f"left: {leftovers(broker)}")


def until(holds: Callable[[], Any], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.01)


# --- What went wrong inside -----------------------------------------------------------------------


@contextlib.contextmanager
def failures_logged() -> Iterator[list[str]]:
    """Collect the tracebacks of everything that is logged with one."""
    found: list[str] = []

    def collect(_logger: object, _method: str, event: dict[str, Any]) -> str:
        if event.get("exc_info"):
            found.append(structlog.processors.format_exc_info(None, "", event)["exception"])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[collect])
    try:
        yield found
    finally:
        structlog.configure(**before)


# --- Witnesses ------------------------------------------------------------------------------------


class SocketLink:
    """A real connection in the shape that the simulated clients speak through."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=SECONDS_MAX)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed a witness's connection")
        return data


class Witnesses:
    """A publisher and a subscriber of each protocol, who all meet on one topic."""

    def __init__(self, broker: LiveBroker) -> None:
        self._broker = broker
        self.published = 0
        self.subscribers = [self._join(protocol, 100) for protocol in PROTOCOLS]
        self.publishers = [self._join(protocol, 200) for protocol in PROTOCOLS]
        for subscriber in self.subscribers:
            subscriber.subscribe(CHANNEL)
        topic = SimulatedClient.topic(CHANNEL)
        subscribers = broker.server.broker.router.subscribers
        until(
            lambda: broker.call(lambda: len(subscribers(topic))) == len(self.subscribers),
            lambda: "the witnesses cannot subscribe",
        )

    def _join(self, protocol: Protocol, number: int) -> SimulatedClient:
        link: Any = SocketLink(self._broker.address)
        order = ORDERS.get(protocol, "little")
        client = KINDS[protocol](link, random.Random(0), number + protocol.number, order)
        client.connect()
        while not client.ready:
            client.read()
        return client

    def round(self, count: int = 20) -> None:
        """Each publishes `count` messages; everybody gets them all."""
        for number in range(self.published, self.published + count):
            for publisher in self.publishers:
                value = TOKEN + struct.pack(">BI", publisher.protocol.number, number)
                publisher.publish(CHANNEL, value)
        self.published += count
        for subscriber in self.subscribers:
            while len(subscriber.received) < self.published * len(self.publishers):
                subscriber.read()
        for publisher in self.publishers:
            if publisher.published:  # answers of those who give them
                while publisher.acknowledged < publisher.published:
                    publisher.read()

    def check(self) -> None:
        """All saw the same, each publisher's messages in order, and nothing else."""
        for subscriber in self.subscribers:
            subscriber.link.socket.settimeout(0.05)  # type: ignore[attr-defined]
            with contextlib.suppress(TimeoutError):
                subscriber.read()
        orders = [[value for _, value in each.received] for each in self.subscribers]
        assert all(order == orders[0] for order in orders), "witnesses saw different orders"
        for publisher in self.publishers:
            prefix = TOKEN + bytes([publisher.protocol.number])
            numbers = [value[len(prefix) :] for value in orders[0] if value.startswith(prefix)]
            assert numbers == [struct.pack(">I", n) for n in range(self.published)]
        assert len(orders[0]) == self.published * len(self.publishers)

    def close(self) -> None:
        for client in (*self.subscribers, *self.publishers):
            client.link.socket.close()  # type: ignore[attr-defined]


# --- Attackers ------------------------------------------------------------------------------------


def handshake(protocol: Protocol, choose: random.Random) -> bytes:
    """What makes a session, most of the time."""
    name = b"a%d" % choose.randrange(30)
    match protocol.label:
        case "herald":
            return herald_bytes.handshake_pub(7, name) + herald_bytes.handshake_sub(
                b"\x07\x08", name
            )
        case "lamamq":
            return lamamq_bytes.authentication(name, b"k") + lamamq_bytes.CHOICE
        case "fleximq":
            return fleximq_bytes.frame(0, 0)
        case _:
            return b""


def frames(protocol: Protocol, number: int) -> list[bytes]:
    """The seeds of a protocol's fuzz target, as sent by client `number`."""
    seeds = [seed[1:] for seed in load(protocol.label).SEEDS]
    if protocol is FLEXIMQ:
        return [seed.replace(struct.pack(">I", 1000), struct.pack(">I", number)) for seed in seeds]
    return seeds


class Attacker:
    """One connection that does harm; `step` goes on with it until it returns False."""

    def __init__(self, address: tuple[str, int], choose: random.Random) -> None:
        self._choose = choose
        self.protocol = choose.choice(list(PROTOCOLS))
        self.socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 1000
        start = handshake(self.protocol, choose)
        if self.protocol is FLEXIMQ:
            self.socket.sendall(start)
            self._number = fleximq_bytes.parse(self._frame()).client_id
            start = b""
        self._seeds = frames(self.protocol, self._number)
        self._left = self._garble(start)
        self.socket.settimeout(0)

    def _frame(self) -> bytes:
        """One fleximq frame."""
        data = b""
        while len(data) < 26 or len(data) < 34 + fleximq_bytes.header_length(data[:26]):
            more = self.socket.recv(4096)
            assert more, "a JOIN was not answered"
            data += more
        return data

    def _garble(self, start: bytes) -> bytes:
        choose = self._choose
        data = bytearray(b"".join(choose.choices(self._seeds, k=choose.randrange(1, 30))))
        for _ in range(choose.choice((0, 0, 1, 1, 2, 8))):
            choose.choice(CHANGES)(data, choose, self._seeds)
        if choose.random() < 0.1:
            data += choose.randbytes(choose.randrange(1, 3000))
        stream = bytearray(start + data)
        if choose.random() < 0.1:
            choose.choice(CHANGES)(stream, choose, self._seeds)
        return bytes(stream)

    def step(self) -> bool:
        choose = self._choose
        if not self._left or choose.random() < 0.02:
            self._leave()
            return False
        size = choose.choice((1, 3, 50, 1000, 100_000))
        try:
            sent = self.socket.send(self._left[:size])
            self._left = self._left[sent:]
            if choose.random() < 0.3:
                self.socket.recv(choose.choice((10, 100_000)))
        except BlockingIOError:
            pass
        except OSError:
            self.socket.close()
            return False
        return True

    def _leave(self) -> None:
        how = self._choose.randrange(3)
        with contextlib.suppress(OSError):
            if how == 0:
                linger = struct.pack("ii", 1, 0)
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            elif how == 1:
                self.socket.shutdown(socket.SHUT_WR)
                select.select([self.socket], [], [], 0.01)
        self.socket.close()


# --- The whole ------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Report:
    """What was tried."""

    connections: int = 0
    witnessed: int = 0
    rejected: int = 0


def attacked_options(*, hooks: bool) -> GatewayOptions:
    """Attackers stay away from the witnesses, and have hooks on topics of their own alone."""
    both = frozenset(Action)
    rules = [] if hooks else [Rule(allow=False, actions=both, pattern=f"channel/{CHANNEL}")]
    return GatewayOptions(anonymous=Principal("attacker", rules), handshake_seconds_max=1.0)


def attack(
    *, seconds: float, seed: int, hooks: bool = False, connections_max: int = 1 << 30
) -> Report:
    """Attack a broker for a while; raise AssertionError if anything breaks.

    With `hooks` attackers may have a say in everything, so that there are no witnesses.
    """
    report = Report()
    with LiveBroker() as broker, failures_logged() as failures, contextlib.ExitStack() as stack:
        listening = broker.server.listen_tcp(options=attacked_options(hooks=hooks))
        address = asyncio.run_coroutine_threadsafe(listening, broker._loop).result(10)
        unhandled: list[dict[str, Any]] = []
        broker.call(
            lambda: broker._loop.set_exception_handler(lambda _, context: unhandled.append(context))
        )
        stop = threading.Event()
        harm = threading.Thread(
            target=_do_harm, args=(address, random.Random(seed), stop, report, connections_max)
        )
        deadline = time.monotonic() + seconds
        try:
            witnesses = None if hooks else Witnesses(broker)
            harm.start()
            while time.monotonic() < deadline and harm.is_alive():
                if witnesses is not None:
                    witnesses.round()
                else:
                    stop.wait(0.05)
            if witnesses is not None:
                witnesses.check()
                report.witnessed = witnesses.published * len(witnesses.publishers) * len(PROTOCOLS)
                stack.callback(witnesses.close)
        finally:
            stop.set()
            harm.join(SECONDS_MAX)
        stack.close()
        assert not harm.is_alive(), "attackers are stuck"
        assert_nothing_is_left(broker)
        counters = broker.server.broker.counters
        report.rejected = sum(counters.frames_rejected.values())
        assert not failures, failures[0]
        assert not unhandled, unhandled[0]
        assert counters.connections_failed["internal error"] == 0
    return report


def _do_harm(
    address: tuple[str, int],
    choose: random.Random,
    stop: threading.Event,
    report: Report,
    connections_max: int,
) -> None:
    attackers: list[Attacker] = []
    try:
        while not stop.is_set() and (attackers or report.connections < connections_max):
            if len(attackers) < ATTACKERS_MAX and report.connections < connections_max:
                attackers.append(Attacker(address, choose))
                report.connections += 1
            place = choose.randrange(len(attackers))
            if not attackers[place].step():
                attackers.pop(place)
    finally:
        for attacker in attackers:
            attacker.socket.close()


def main(arguments: list[str] | None = None) -> int:
    """Attack with one seed after the other; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.sockets", description="Fuzz a live broker."
    )
    parser.add_argument("--seconds", type=float, default=60, help="in all (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (default: 1)")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    seed = options.seed
    while time.monotonic() < end:
        for hooks in (False, True):
            try:
                report = attack(seconds=min(10, options.seconds / 2), seed=seed, hooks=hooks)
            except AssertionError as error:
                sys.stdout.write(f"seed {seed}, hooks {hooks}: FOUND\n{error}\n")
                return 1
            sys.stdout.write(f"seed {seed}, hooks {hooks}: {report}\n")
            sys.stdout.flush()
        seed += 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
