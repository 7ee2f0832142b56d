"""Drives a live broker with random valid operations, and compares what clients see with the model.

    python -m tests.fuzz.rights_run --sequences 10000 --seed 1

A sequence opens a few clients of any protocol, does some operations of clients, HTTP, Flight and
the operator (a reload of all rules), and checks after each: an operation is refused exactly if the
model says so, and every client has got exactly what the model says, nothing more.
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import structlog

from penstock.conform.fleximq import encoding as fx
from penstock.conform.herald import encoding as herald
from penstock.conform.lamamq import encoding as lama
from penstock.conform.rheos.encoding import PUBLISH, RHEOS1, RHEOS2, SUBSCRIBE
from penstock.errors import NotAllowed
from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from penstock.model import Durability
from penstock.storage.options import DurabilityRules, LogOptions
from tests.fuzz.rights_model import (
    ANONYMOUS,
    GROUPS,
    MEMBER_GROUPS,
    PATHS,
    PATTERNS,
    PEOPLE,
    SERVICES,
    TOPICS,
    Model,
    names_of,
    random_config,
)
from tests.support.rights_broker import RightsBroker
from tests.support.settling_peers import (
    Closed,
    FleximqPeer,
    Got,
    HeraldPeer,
    LamamqPeer,
    RheosPeer,
    SettlingPeer,
)

CHANNELS = dict(enumerate(TOPICS, 1))
CHANNEL_OF = {topic: channel for channel, topic in CHANNELS.items()}
READ_OFFSETS_MAX = 40
REPLAY_SECONDS_MAX = 5.0
HOW = {
    "fleximq": "PUB",
    "lamamq": "FORWARD",
    "herald": "MESSAGE",
    "rheos1": "RESPONSE",
    "rheos2": "EVENT",
}


class Client:
    """A connected client, and what the model expects it to get."""

    published: ClassVar[dict[bytes, str]] = {}
    """Topics of all values that were published."""

    def __init__(self, kind: str, who: str, peer: SettlingPeer) -> None:
        self.kind = kind
        self.who = who
        self.peer: Any = peer
        self.subscriptions: set[str] = set()
        self.hooks: list[tuple[str, str | None]] = []  # event and topic
        self.expected: list[Got] = []
        self.refusals = 0
        self.groups: set[str] = set()
        self.services: set[str] = set()
        self.replays = False

    def follows(self, topic: str) -> bool:
        return any(topic in names_of(pattern) for pattern in self.subscriptions)

    def settle(self) -> None:
        """Compare what came with what was expected; raise AssertionError."""
        found, refusals = self.peer.settle()
        expected, self.expected = self.expected, []
        if self.kind == "rheos1":
            expected = [got._replace(topic="") for got in expected]
        ends = time.monotonic() + REPLAY_SECONDS_MAX
        while self.replays and len(found) < len(expected) and time.monotonic() < ends:
            more, refused = self.peer.settle()
            found += more
            refusals += refused
        if self.groups:
            found = self._without_group(found, expected)
        assert found == expected, f"{self} got {found}, expected {expected}"
        assert refusals == self.refusals, (
            f"{self} was refused {refusals} times, not {self.refusals}"
        )
        self.refusals = 0

    def _without_group(self, found: list[Got], expected: list[Got]) -> list[Got]:
        """Take out what came by groups, which share it out; raise AssertionError for others."""
        left, rest = list(expected), []
        for got in found:
            if left and got == left[0]:
                rest.append(left.pop(0))
                continue
            topic = self.published.get(got.value)
            allowed = any(topic in names_of(MEMBER_GROUPS[name]) for name in self.groups)
            assert allowed, f"{self} got {got} by a group"
            assert got.topic in {"", topic}
        return rest

    def __repr__(self) -> str:
        shown = f"{self.kind} of {self.who} {sorted(self.subscriptions)} {self.hooks}"
        return f"{shown} groups {sorted(self.groups)} services {sorted(self.services)}"


class World:
    """A broker that all sequences share, and its model."""

    def __init__(self, broker: RightsBroker) -> None:
        self.broker = broker
        self.counter = itertools.count(1)
        self.groups: set[str] = set()
        self.joined: set[str] = set()
        self.last: dict[str, bytes] = {}  # values of topics, in the order of their offsets
        self.flights = {who: FlightClient(broker.endpoint, token=who) for who in PEOPLE}
        self.flights[ANONYMOUS] = FlightClient(broker.endpoint)
        for topic in TOPICS:
            broker.call(lambda name=topic: broker.server.broker.topics.intern(name))
        self.model = self.reload(random.Random(0))

    def close(self) -> None:
        for flight in self.flights.values():
            flight.close()

    def leave_groups(self) -> None:
        """Remove the groups of clients, so that what they have not read does not come later."""
        groups = self.broker.server.broker.groups
        assert groups is not None
        for name in self.joined:
            removed = threading.Event()

            def remove(name: str = name, removed: threading.Event = removed) -> None:
                if name in groups:
                    for session in groups.remove(name, lambda _: removed.set()):
                        session.end()
                else:
                    removed.set()

            self.broker.call(remove)
            assert removed.wait(REPLAY_SECONDS_MAX)
        self.joined.clear()

    def reload(self, dice: random.Random) -> Model:
        config = random_config(dice)
        self.broker.reload(config)
        self.model = Model(config)
        return self.model


class Sequence:
    """One run of operations; `steps` describes them for a failure."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.clients: list[Client] = []
        self.peers: list[SettlingPeer] = []
        self.pending: list[tuple[str, Client, Client]] = []  # id, requester, target
        self.steps: list[str] = [f"seed {seed}"]
        self.history: list[tuple[str, bytes]] = []
        self.start = world.broker.call(lambda: world.broker.server.broker.log.next_offset)

    @property
    def model(self) -> Model:
        return self.world.model

    def run(self) -> None:
        try:
            self.world.reload(self.dice)
            self._note(f"rules {self.model._rules} {self.model._default}")
            for _ in range(self.dice.randint(2, 5)):
                self._open()
            for _ in range(self.dice.randint(6, 14)):
                self._step()
            self._settle_all()
        except Exception as error:
            error.add_note("\n".join(self.steps))
            raise
        finally:
            for peer in self.peers:
                peer.socket.close()
            self.world.leave_groups()

    def _note(self, text: str) -> None:
        self.steps.append(text)

    def _value(self) -> bytes:
        return str(next(self.world.counter)).encode()

    # --- Clients ------------------------------------------------------------------------------

    def _open(self) -> None:
        address = self.world.broker.address
        who = self.dice.choice((*PEOPLE, ANONYMOUS))
        token = None if who == ANONYMOUS else who
        kind = self.dice.choice(("fleximq", "fleximq", "lamamq", "herald", "rheos1", "rheos2"))
        self._note(f"open {kind} {who}")
        match kind:
            case "fleximq":
                client = Client(kind, who, FleximqPeer(address, token=token))
            case "lamamq":
                name = token or f"guest-{next(self.world.counter)}"
                client = Client(kind, who, LamamqPeer(address, name=name, key=token))
            case "herald":
                opened = self._open_herald()
                if opened is None:
                    return
                client = opened
            case _:
                rheos = RHEOS1 if kind == "rheos1" else RHEOS2
                client = Client(kind, ANONYMOUS, RheosPeer(address, rheos))
        self.peers.append(client.peer)
        client.settle()
        self.clients.append(client)

    def _open_herald(self) -> Client | None:
        channels = self.dice.sample(sorted(CHANNELS), 2)
        name = f"herald-{next(self.world.counter)}".encode()
        if self.dice.random() < 0.5:
            right, channels = "publish", channels[:1]
            handshake = herald.handshake_pub(channels[0], name)
        else:
            right = "subscribe"
            handshake = herald.handshake_sub(bytes(channels), name)
        allowed = all(self.model.may(ANONYMOUS, right, CHANNELS[each]) for each in channels)
        peer = HeraldPeer(self.world.broker.address, handshake, CHANNELS)
        self.peers.append(peer)
        assert peer.accepted == allowed, f"herald {right} {channels}"
        if not allowed:
            return None
        client = Client("herald", ANONYMOUS, peer)
        client.peer.publishes = right == "publish"
        if right == "subscribe":
            client.subscriptions = {CHANNELS[each] for each in channels}
        return client

    def _settle_all(self) -> None:
        for client in self.clients:
            client.settle()

    # --- Operations ---------------------------------------------------------------------------

    def _step(self) -> None:
        everyone = [self._http, self._flight, self._reload]
        mine: dict[str, list[Callable[[Client], None]]] = {
            "fleximq": [
                self._publish, self._publish, self._subscribe, self._subscribe, self._routed,
                self._notify, self._broadcast, self._request, self._reply, self._ask_broker,
                self._join, self._replay, self._serve, self._serve, self._ask_service,
            ],
            "lamamq": [
                self._publish, self._publish, self._subscribe, self._hook, self._hook, self._join,
                self._replay,
            ],
            "herald": [self._publish, self._subscribe],
        }  # fmt: skip
        if not self.clients or self.dice.random() < 0.2:
            self.dice.choice(everyone)()
            return
        client = self.dice.choice(self.clients)
        operation = self.dice.choice(
            mine.get(client.kind, [self._publish, self._subscribe, self._join, self._replay])
        )
        self._note(f"{operation.__name__} by {client}")
        operation(client)
        if client in self.clients:
            client.settle()

    def _publish(self, client: Client) -> None:
        topic, value = self.dice.choice(TOPICS), self._value()
        self._note(f"  {topic} {value!r}")
        match client.kind:
            case "fleximq":
                client.peer.say(fx.PUB, fx.topic(topic), payload=fx.pack(value))
            case "lamamq":
                client.peer.ask(lama.push(0, topic.encode(), value))
            case "herald":
                client.peer.put(herald.publish(CHANNEL_OF[topic], value))
                if not client.peer.publishes:
                    client.refusals += 1
                    return
            case _:
                client.peer.ask(PUBLISH, topic, value)
        if self.model.may(client.who, "publish", topic):
            self._delivered(topic, value, sender=client)
        else:
            client.refusals += 1

    def _delivered(self, topic: str, value: bytes, *, sender: Client | None) -> None:
        Client.published[value] = topic
        self.history.append((topic, value))
        self.world.last.pop(topic, None)
        self.world.last[topic] = value
        self._told("push", topic, value, sender=sender)
        for client in self.clients:
            if client.follows(topic):
                client.expected.append(Got(HOW[client.kind], topic, value))

    def _told(self, event: str, subject: str, value: bytes, *, sender: Client | None) -> None:
        """TELL hooks are called before the event happens."""
        for client in self.clients:
            for kind, topic in client.hooks:
                if client is not sender and kind == event and topic in {None, subject}:
                    client.expected.append(Got("HOOK", subject, value))

    def _subscribe(self, client: Client) -> None:
        pattern = self.dice.choice(TOPICS if client.kind == "herald" else PATTERNS)
        self._note(f"  {pattern}")
        match client.kind:
            case "fleximq":
                client.peer.say(fx.SUB, fx.topic(pattern))
            case "lamamq":
                client.peer.ask(lama.subscribe(0, pattern.encode()))
            case "herald":
                client.peer.put(herald.subscribe(CHANNEL_OF[pattern]))
                if client.peer.publishes:
                    client.refusals += 1
                    return
            case _:
                client.peer.ask(SUBSCRIBE, pattern)
        if pattern in client.subscriptions:
            return
        if not self.model.may(client.who, "subscribe", pattern):
            client.refusals += 1
            return
        self._told("subscribe", pattern, b"", sender=client)
        client.subscriptions.add(pattern)

    def _ask_subscribe(self, client: Client, text: str) -> None:
        match client.kind:
            case "fleximq":
                client.peer.say(fx.SUB, fx.topic(text))
            case "lamamq":
                client.peer.ask(lama.subscribe(0, text.encode()))
            case _:
                client.peer.ask(SUBSCRIBE, text)

    def _join(self, client: Client) -> None:
        name, pattern = self.dice.choice(sorted(MEMBER_GROUPS.items()))
        self._note(f"  {pattern} {name}")
        if name in client.groups:
            return
        self._ask_subscribe(client, f"{pattern}@group={name}")
        may = self.model.may
        if not (may(client.who, "subscribe", pattern) and may(client.who, "group", name)):
            client.refusals += 1
            return
        self._told("subscribe", pattern, b"", sender=client)
        client.groups.add(name)
        self.world.joined.add(name)

    def _replay(self, client: Client) -> None:
        """Subscribe to history, with a client that has no subscription yet."""
        if client.subscriptions or client.groups:
            return
        pattern = self.dice.choice(PATTERNS)
        last = self.dice.random() < 0.5
        text = f"{pattern}@last" if last else f"{pattern}@#{self.start}"
        self._note(f"  {text}")
        self._ask_subscribe(client, text)
        if not self.model.may(client.who, "subscribe", pattern):
            client.refusals += 1
            return
        self._told("subscribe", pattern, b"", sender=client)
        client.subscriptions.add(pattern)
        client.replays = True
        messages = self.world.last.items() if last else self.history
        for topic, value in messages:
            if topic in names_of(pattern):
                client.expected.append(Got(HOW[client.kind], topic, value))

    # --- fleximq ------------------------------------------------------------------------------

    def _targets(self, count: int) -> list[tuple[Client, str]]:
        known = [client for client in self.clients if client.kind == "fleximq"]
        return [(self.dice.choice(known), self.dice.choice(PATHS)) for _ in range(count)]

    def _routed(self, client: Client) -> None:
        topic, value = self.dice.choice(TOPICS), self._value()
        targets = self._targets(2)
        self._note(f"  {topic} {value!r} to {targets}")
        entries = fx.routing(*((target.peer.number, path) for target, path in targets))
        client.peer.say(fx.PUB, fx.topic(topic), entries, payload=fx.pack(value))
        if not self.model.may(client.who, "publish", topic):
            client.refusals += 1
            return
        self._told("push", topic, value, sender=client)
        for target, _ in targets:
            if target.follows(topic):
                target.expected.append(Got("PUB", topic, value))

    def _notify(self, client: Client) -> None:
        value, targets = self._value(), self._targets(self.dice.randint(1, 2))
        self._note(f"  {value!r} to {targets}")
        entries = fx.routing(*((target.peer.number, path) for target, path in targets))
        client.peer.say(fx.NOTIF, entries, payload=fx.pack(value))
        if not all(self.model.may_request(client.who, path) for _, path in targets):
            client.refusals += 1
            return
        served = [(each, path) for each, path in targets if self.model.may_serve(each.who, path)]
        client.refusals += len(served) < len(targets)
        for target, path in served:
            target.expected.append(Got("NOTIF", path, value))

    def _broadcast(self, client: Client) -> None:
        value = self._value()
        client.peer.say(fx.BCAST, payload=fx.pack(value))
        if not self.model.may(client.who, "request", "#"):
            client.refusals += 1
            return
        for each in self.clients:
            if each.kind == "fleximq" and self.model.may(each.who, "serve", "#"):
                each.expected.append(Got("BCAST", "", value))

    def _request(self, client: Client) -> None:
        value = self._value()
        ((target, path),) = self._targets(1)
        self._note(f"  {value!r} to {target} {path}")
        identifier = value.decode()
        client.peer.say(
            fx.REQ,
            fx.routing((target.peer.number, path)),
            fx.request(identifier),
            payload=fx.pack(value),
        )
        if not (
            self.model.may_request(client.who, path) and self.model.may_serve(target.who, path)
        ):
            client.refusals += 1
            return
        target.expected.append(Got("REQ", path, value))
        self.pending.append((identifier, client, target))

    def _reply(self, client: Client) -> None:
        """Answer a request, or pretend to answer one of another client."""
        value = self._value()
        mine = [each for each in self.pending if each[2] is client]
        others = [each for each in self.pending if each[2] is not client]
        if not mine and not others:
            return
        found = self.dice.choice(mine or others)
        identifier, requester, _ = found
        self._note(f"  {value!r} to {requester} {identifier}")
        client.peer.say(
            fx.REP,
            fx.routing((requester.peer.number, "")),
            fx.correlation(identifier),
            payload=fx.pack(value),
        )
        if found in mine:
            self.pending.remove(found)
            requester.expected.append(Got("REP", "", value))
        else:
            client.refusals += 1

    def _serve(self, client: Client) -> None:
        path = self.dice.choice(SERVICES)
        self._note(f"  {path}")
        if any(path in each.services for each in self.clients):
            return  # which of several servers gets a request is not of interest here
        client.peer.say(fx.REQ, fx.routing((1, "/serve")), fx.request("s"), payload=fx.pack(path))
        if self.model.may_serve(client.who, path):
            client.services.add(path)
        else:
            client.refusals += 1

    def _ask_service(self, client: Client) -> None:
        path, value = self.dice.choice(SERVICES), self._value()
        identifier = value.decode()
        self._note(f"  {path} {value!r}")
        client.peer.say(
            fx.REQ, fx.routing((1, path)), fx.request(identifier), payload=fx.pack(value)
        )
        servers = [each for each in self.clients if path in each.services]
        may = self.model.may_request(client.who, path)
        if not may or not servers or not self.model.may_serve(servers[0].who, path):
            client.refusals += 1
            return
        servers[0].expected.append(Got("REQ", path, value))
        self.pending.append((identifier, client, servers[0]))

    def _ask_broker(self, client: Client) -> None:
        path = self.dice.choice(("/clients", "/stats", "/topics", "/time"))
        self._note(f"  {path}")
        client.peer.say(fx.REQ, fx.routing((1, path)), fx.request(path))
        if path in {"/clients", "/stats"}:
            allowed = self.model.may(client.who, "administer", path[1:])
        else:
            allowed = self.model.may_anywhere(client.who, "request", "subscribe", "publish")
        client.refusals += not allowed
        client.settle()
        if allowed and path == "/topics":
            (answer,) = (each for each in client.peer.frames if each.client_id == fx.BROKER)
            self._check_topics(client.who, answer.value["topics"], "subscribe", "publish")

    def _check_topics(self, who: str, seen: list[str], *actions: str) -> None:
        for topic in seen:
            allowed = any(self.model.may(who, action, topic or "#") for action in actions)
            assert allowed, f"{who} sees {topic}"

    # --- LamaMQ -------------------------------------------------------------------------------

    def _hook(self, client: Client) -> None:
        event = self.dice.choice(("push", "push", "subscribe"))
        topic = self.dice.choice((*TOPICS, None)) if event == "push" else None
        self._note(f"  {event} {topic}")
        conditions = () if topic is None else (lama.topic_is(topic.encode()),)
        kind = lama.PUSHED if event == "push" else lama.SUBSCRIBED
        client.peer.ask(lama.register(0, self._value(), kind, *conditions, strategy=lama.TELL))
        name = topic or "#"
        if all(self.model.may(client.who, right, name) for right in ("hook", "subscribe")):
            client.hooks.append((event, topic))
        else:
            client.refusals += 1

    # --- HTTP, Flight and the operator ----------------------------------------------------------

    def _http(self) -> None:
        who = self.dice.choice((*PEOPLE, ANONYMOUS))
        token = None if who == ANONYMOUS else who
        broker = self.world.broker
        what = self.dice.choice(
            (
                "publish",
                "publish",
                "topics",
                "groups",
                "clients",
                "log",
                "messages",
                "services",
                "change",
            )
        )
        self._note(f"http {what} by {who}")
        match what:
            case "publish":
                topic, value = self.dice.choice(TOPICS), self._value()
                self._note(f"  {topic} {value!r}")
                status, _ = broker.http(token, "/api/publish", topic=topic, text=value.decode())
                allowed = self.model.may(who, "publish", topic)
                assert status == (200 if allowed else 403)
                if allowed:
                    self._delivered(topic, value, sender=None)
            case "topics":
                status, answer = broker.http(token, "/api/topics?limit=1000")
                assert status == 200
                self._check_topics(who, [each["name"] for each in answer["topics"]], "subscribe")
            case "messages":
                pattern = self.dice.choice(PATTERNS)
                path = f"/api/messages?limit=50&topic={urllib.parse.quote(pattern, safe='')}"
                status, answer = broker.http(token, path)
                assert status == (200 if self.model.may(who, "subscribe", pattern) else 403)
                for each in answer.get("messages", ()):
                    # Messages between clients have no topic, and are part of everything.
                    topic = each["topic"] or "~"
                    assert topic in names_of(pattern), f"{who} reads {each} by {pattern}"
            case "services":
                status, answer = broker.http(token, "/api/services")
                assert status == 200
                self._check_services(who, {each["path"] for each in answer["services"]})
            case "change":
                self._change_group(who, token)
            case "groups":
                status, answer = broker.http(token, "/api/groups")
                self._check_groups(who, {each["name"] for each in answer["groups"]})
            case _:
                status, _ = broker.http(token, f"/api/{what}")
                assert status == (200 if self.model.may(who, "administer", what) else 403)

    def _check_services(self, who: str, seen: set[str]) -> None:
        model = self.model
        visible = {
            path for path in SERVICES if model.may_request(who, path) or model.may_serve(who, path)
        }
        assert seen <= visible, f"{who} sees the services {seen}"
        mine = {path for client in self.clients for path in client.services}
        assert visible & mine <= seen, f"{who} does not see the services {visible & mine}"

    def _change_group(self, who: str, token: str | None) -> None:
        group = self.dice.choice(GROUPS)
        method, what = self.dice.choice(
            (("POST", "/reset?to=latest"), ("POST", "/redrive"), ("DELETE", ""))
        )
        self._note(f"  {method} {group}{what}")
        status = self.world.broker.status(token, method, f"/api/groups/{group}{what}")
        if not self.model.may(who, "administer", f"groups/{group}"):
            assert status == 403
            return
        # A group of readers of tables has no dead letters, and may not be there.
        assert status in ((409, 404) if what == "/redrive" else (200, 404))
        if method == "DELETE":
            assert (status == 200) == (group in self.world.groups)
            self.world.groups.discard(group)

    def _check_groups(self, who: str, seen: set[str]) -> None:
        seen = seen - MEMBER_GROUPS.keys()
        expected = {each for each in self.world.groups if self.model.may(who, "group", each)}
        assert seen == expected, f"{who} sees the groups {seen}, not {expected}"

    def _flight(self) -> None:
        who = self.dice.choice((*PEOPLE, ANONYMOUS))
        flight = self.world.flights[who]
        what = self.dice.choice(("read", "read", "topics", "groups", "commit", "bounds"))
        self._note(f"flight {what} by {who}")
        match what:
            case "read":
                self._flight_read(who, flight)
            case "topics":
                self._check_topics(who, flight.topics(), "subscribe")
            case "groups":
                self._check_groups(who, set(flight.groups()))
            case "commit":
                group = self.dice.choice(GROUPS)
                self._note(f"  {group}")
                allowed = self.model.may(who, "group", group)
                _expect(lambda: flight.commit_group(group, {0: 0}), allowed=allowed)
                if allowed:
                    self.world.groups.add(group)
            case "bounds":
                allowed = self.model.may_anywhere(who, "subscribe", "publish")
                _expect(flight.bounds, allowed=allowed)

    def _flight_read(self, who: str, flight: FlightClient) -> None:
        storage = self.world.broker.server.storage
        end = storage.bounds()[0].end
        asked: dict[str, Any] = self.dice.choice(
            (
                {"topics": self.dice.sample(TOPICS, 2)},
                {"patterns": [self.dice.choice(PATTERNS)]},
                {"expression": self.dice.choice((".*", "s.*", "a/b|s/x"))},
                {"expression": ".*", "topics": [self.dice.choice(TOPICS)]},
                {},
            )
        )
        self._note(f"  {asked}")
        names = [*asked.get("topics", ()), *asked.get("patterns", ())]
        if not asked:
            names = ["#"]
        allowed = all(self.model.may(who, "subscribe", name) for name in names)
        request = ReadRange(max(end - READ_OFFSETS_MAX, 0), end, columns=["topic"], **asked)
        batches = _expect(lambda: list(flight.read(request)), allowed=allowed)
        everything = self.model.may(who, "subscribe", "#")
        for batch in batches or ():
            for topic in set(batch.column("topic").to_pylist()):
                seen = topic in TOPICS and self.model.may(who, "subscribe", topic)
                assert seen or everything, f"{who} reads {topic} by {asked}"

    def _reload(self) -> None:
        self._settle_all()
        model = self.world.reload(self.dice)
        self._note(f"reload {model._rules} {model._default}")
        for client in list(self.clients):
            forbidden = any(
                not model.may(client.who, "subscribe", pattern) for pattern in client.subscriptions
            ) or any(
                not model.may(client.who, right, topic or "#")
                for _, topic in client.hooks
                for right in ("hook", "subscribe")
            )
            forbidden = forbidden or any(
                not model.may(client.who, "group", name)
                or not model.may(client.who, "subscribe", MEMBER_GROUPS[name])
                for name in client.groups
            )
            if forbidden:
                self._closed(client)

    def _closed(self, client: Client) -> None:
        """A client that lost a subscription or hook is disconnected, and gets nothing more."""
        self._note(f"  closed: {client}")
        self.clients.remove(client)
        try:
            found, _ = client.peer.settle()
        except Closed:
            found = []
        else:
            raise AssertionError(f"{client} is still connected and got {found}")
        for entry in list(self.pending):
            _, requester, target = entry
            if client in (requester, target):
                self.pending.remove(entry)
            if target is client and requester is not client:
                requester.refusals += 1  # "the client has left"


def _expect(call: Callable[[], Any], *, allowed: bool) -> Any:
    """Make a call, which must be refused exactly if it is not allowed; return its result."""
    try:
        found = call()
    except NotAllowed:
        assert not allowed, "refused, but the model allows it"
        return None
    assert allowed, f"not refused: {found}"
    return found


def new_world(folder: Path) -> RightsBroker:
    """A broker for a world."""
    options = LogOptions(durability=DurabilityRules(Durability.OS, []))
    config = random_config(random.Random(0))
    return RightsBroker(config, folder, log_options=options, channels=CHANNELS)


def run(*, sequences: int, seed: int, report: Callable[[int], None] | None = None) -> None:
    """Run sequences with the seeds from `seed` on; raise AssertionError at a difference."""
    with tempfile.TemporaryDirectory() as folder, new_world(Path(folder)) as broker:
        world = World(broker)
        try:
            for number in range(sequences):
                Sequence(world, seed + number).run()
                if report is not None:
                    report(number + 1)
        finally:
            world.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    started = time.monotonic()

    def report(number: int) -> None:
        if number % 250 == 0:
            seconds = time.monotonic() - started
            sys.stdout.write(f"{number} sequences, {seconds:.0f} s\n")
            sys.stdout.flush()

    run(sequences=arguments.sequences, seed=arguments.seed, report=report)
    sys.stdout.write(f"no difference in {arguments.sequences} sequences\n")


if __name__ == "__main__":
    main()
