"""Attackers: each connects from an address of its own and does all the harm it can, in turn.

Run as a process of its own: `python -m tests.attack.attackers TARGET SECONDS COUNT SEED`, TARGET
being JSON of `Target`. It prints a report as JSON: how often each attack ran, how many acts it made,
and every leak: a place where an attacker got bytes of an honest client.
"""

import contextlib
import http.client
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.flight as pf

import tests.attack.held_state  # noqa: F401 - adds its attacks
from penstock.conform.fleximq import encoding as fx
from penstock.conform.fleximq.messagepack import pack
from penstock.conform.herald import encoding as hb
from penstock.conform.lamamq import encoding as lm
from penstock.conform.rheos.encoding import CREATE, PUBLISH, RHEOS1, RHEOS2, SUBSCRIBE
from penstock.flight.client import FlightClient
from penstock.flight.protocol import ReadRange
from tests.attack.attacker import (
    ATTACKS,
    KIB,
    MIB,
    READ_BYTES,
    Attacker,
    Report,
    Target,
    attack,
)
from tests.fuzz.mutate import mutants

# --- Rights ---------------------------------------------------------------------------------------

FORBIDDEN: Final = (
    "honest/0",
    "honest/#",
    "#",
    "honest/+",
    "*.*",
    ">",
    "honest.3@earliest",
    "#@-1h",
)


@attack
def subscribe_to_what_is_forbidden(attacker: Attacker) -> None:
    peer, number = attacker.join_fleximq(token=attacker.target.token)
    lama = attacker.join_lamamq()
    rheos = attacker.connect()
    for index, pattern in enumerate(FORBIDDEN):
        peer.sendall(fx.frame(fx.SUB, number, fx.topic(pattern)))
        lama.sendall(lm.subscribe(index, pattern.encode()))
        rheos.sendall(RHEOS2.request(SUBSCRIBE, pattern.encode()))
        attacker.acted(3)
    herald = attacker.join_herald(hb.handshake_sub(bytes(range(20)), b"attacker"))
    for each in (peer, lama, rheos, herald):
        attacker.drain(each, 0.5)


@attack
def publish_to_what_is_forbidden(attacker: Attacker) -> None:
    peer, number = attacker.join_fleximq(token=attacker.target.token)
    rheos = attacker.connect()
    while attacker.going:
        for place in range(20):
            name = f"honest/{place}"
            peer.sendall(fx.frame(fx.PUB, number, fx.topic(name), pack(b"forged")))
            rheos.sendall(RHEOS1.request(PUBLISH, name.encode(), b"forged"))
            attacker.acted(2)
        attacker.drain(peer, 0.1)
        attacker.drain(rheos, 0.1)


@attack
def speak_to_clients_directly(attacker: Attacker) -> None:
    """NOTIF, BCAST, REQ and routed PUB to all the clients there may be."""
    peer, number = attacker.join_fleximq()
    payload = pack(bytes(64 * KIB))
    everyone = [(client, "/attack") for client in range(1000, 1250)]
    while attacker.going:
        peer.sendall(fx.frame(fx.BCAST, number, b"", payload))
        peer.sendall(fx.frame(fx.NOTIF, number, fx.routing(*everyone), payload))
        for client, path in everyone[:50]:
            identifier = str(attacker.chance.getrandbits(60))
            header = fx.routing((client, path)) | fx.request(identifier)
            peer.sendall(fx.frame(fx.REQ, number, header, pack(1)))
        attacker.acted(52)
        attacker.drain(peer, 0.1)


@attack
def register_hooks(attacker: Attacker) -> None:
    """A hook on everything that waits and refuses would veto all that is published."""
    peer = attacker.join_lamamq()
    for index in range(200):
        peer.sendall(lm.register(index, b"veto-%d" % index, lm.PUSHED, timeout_ms=60_000))
        peer.sendall(lm.register(1000 + index, b"door-%d" % index, 0, timeout_ms=60_000))
        attacker.acted(2)
    attacker.drain(peer, 1.0)


@attack
def join_groups(attacker: Attacker) -> None:
    """Members that never acknowledge, leave messages to each other, and come back."""
    while attacker.going:
        peer, number = attacker.join_fleximq(token=attacker.target.token)
        for index in range(40):
            text = f"attack/groups/{index % 4}/#@group=attack.{index},earliest"
            peer.sendall(fx.frame(fx.SUB, number, fx.topic(text)))
            forbidden = f"honest/{index}@group=attack.stolen-{index}"
            peer.sendall(fx.frame(fx.SUB, number, fx.topic(forbidden)))
            peer.sendall(fx.frame(fx.SUB, number, fx.topic("attack/#@group=honest")))
        for index in range(200):
            name = fx.topic(f"attack/groups/{index % 4}/{index}")
            peer.sendall(fx.frame(fx.PUB, number, name, pack(bytes(KIB))))
        for delivery in range(100):
            header = fx.routing((1, "/nack")) | fx.request(str(delivery))
            peer.sendall(fx.frame(fx.REQ, number, header, pack(delivery)))
        attacker.acted(420)
        attacker.drain(peer, 0.5)
        peer.close()


@attack
def crowd_services(attacker: Attacker) -> None:
    """Servers that never answer, or leave; requests to all of them; forged answers."""
    while attacker.going:
        server, served = attacker.join_fleximq(token=attacker.target.token)
        peer, number = attacker.join_fleximq(token=attacker.target.token)
        for index in range(100):
            for path in (f"/attack/{index}", f"/honest/{index}", "/" + "x/" * 200):
                header = fx.routing((1, "/serve")) | fx.request(f"s{index}{len(path)}")
                server.sendall(fx.frame(fx.REQ, served, header, pack(path)))
            topic = f"service/serve/attack/{index}"
            server.sendall(fx.frame(fx.SUB, served, fx.topic(topic)))
        for index in range(300):
            header = fx.routing((1, f"/attack/{index % 100}")) | fx.request(f"r{index}")
            peer.sendall(fx.frame(fx.REQ, number, header, pack(bytes(KIB))))
            asked = f"{index} attack/reply\n".encode()
            topic = fx.topic(f"service/request/attack/{index}")
            peer.sendall(fx.frame(fx.PUB, number, topic, pack(asked)))
            forged = fx.routing((1000 + index, "")) | fx.correlation(f"r{index}")
            peer.sendall(fx.frame(fx.REP, number, forged, pack(b"forged")))
        header = fx.routing((1, "/services")) | fx.request("services")
        peer.sendall(fx.frame(fx.REQ, number, header))
        attacker.acted(1300)
        attacker.drain(peer, 0.3)
        attacker.drain(server, 0.3)
        server.close()
        peer.close()


@attack
def use_up_keys_of_messages(attacker: Attacker) -> None:
    """More keys than are remembered, so that those of others are forgotten."""
    peer, number = attacker.join_fleximq(token=attacker.target.token)
    value = pack(b"")
    while attacker.going:
        first = attacker.chance.getrandbits(60)
        frames = b"".join(
            fx.frame(
                fx.PUB,
                number,
                {"topic": "attack/keys", "penstock-dedupe": f"{first + index}"},
                value,
            )
            for index in range(1000)
        )
        peer.sendall(frames)
        for key in ("", "x" * 256, "same"):
            header = {"topic": "attack/keys", "penstock-dedupe": key}
            peer.sendall(fx.frame(fx.PUB, number, header, value))
        attacker.acted(1003)
        attacker.drain(peer, 0.05)


@attack
def exceed_quotas(attacker: Attacker) -> None:
    """A principal that is at all of its quotas all the time."""
    token = attacker.target.limited_token
    while attacker.going:
        peers = []
        for _ in range(20):
            with contextlib.suppress(OSError):
                peers.append(attacker.join_fleximq(token=token))
        for peer, number in peers:
            frame = fx.frame(fx.PUB, number, fx.topic("attack/quota"), pack(bytes(16 * KIB)))
            with contextlib.suppress(OSError):
                peer.sendall(frame * 50)
            attacker.acted(50)
        for peer, _ in peers:
            attacker.drain(peer, 0.05)
            peer.close()


# --- Memory ---------------------------------------------------------------------------------------

LARGE: Final = bytes(15 * MIB)
"""The body of a frame, shared by all attackers: their own memory is not what they attack."""
RHEOS_HEAD: Final = RHEOS2.request(PUBLISH, b"attack/x", LARGE)[: -len(LARGE)]


def announcing(frame: bytes) -> bytes:
    """Return the head of a frame of fleximq that has no payload, with the length of LARGE."""
    return frame[:-8] + len(LARGE).to_bytes(8, "big")


@attack
def pin_unfinished_frames(attacker: Attacker) -> None:
    """Announce large frames and send all but the last byte."""
    peers = []
    for _ in range(10):
        joined, number = attacker.join_fleximq()
        heads = {
            joined: announcing(fx.frame(fx.PUB, number, fx.topic("attack/x"))),
            attacker.connect(): announcing(fx.frame(fx.JOIN, 0)),
            attacker.connect(): RHEOS_HEAD,
        }
        for peer, head in heads.items():
            peer.sendall(head)
            peers.append((peer, memoryview(LARGE)[:-1]))
            peer.settimeout(0)
            attacker.acted()
    while attacker.going and peers:
        peer, rest = peers.pop(0)
        try:
            sent = peer.send(rest[:READ_BYTES])
        except BlockingIOError:
            sent = 0
            time.sleep(0.002)
        except OSError:
            continue
        attacker.acted()
        if sent < len(rest):
            peers.append((peer, rest[sent:]))
    time.sleep(max(0.0, min(1.0, attacker.end - time.monotonic())))


@attack
def fill_the_header_cache(attacker: Attacker) -> None:
    peer, number = attacker.join_fleximq()
    while attacker.going:
        name = f"attack/{attacker.chance.getrandbits(64)}/" + "x" * 30_000
        peer.sendall(fx.frame(fx.PUB, number, fx.topic(name), pack(1)))
        attacker.acted()
        if not attacker.chance.randrange(50):
            attacker.drain(peer, 0.05)


@attack
def read_nothing(attacker: Attacker) -> None:
    """Subscribe to a topic, publish large messages to it, and do not read."""
    readers = []
    for _ in range(20):
        reader, number = attacker.join_fleximq()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        reader.sendall(fx.frame(fx.SUB, number, fx.topic("attack/large")))
        readers.append((reader, number))
    peer, number = attacker.join_fleximq()
    payload = pack(bytes(8 * MIB))
    targets = [(each, "/attack") for _, each in readers]
    for _ in range(2):
        peer.sendall(fx.frame(fx.PUB, number, fx.topic("attack/large"), payload))
        peer.sendall(fx.frame(fx.NOTIF, number, fx.routing(*targets), payload))
        attacker.acted(2)
        attacker.drain(peer, 0.5)
    time.sleep(max(0.0, min(2.0, attacker.end - time.monotonic())))


@attack
def replay_everything_without_reading(attacker: Attacker) -> None:
    for _ in range(20):
        peer, number = attacker.join_fleximq()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        for suffix in ("@earliest", "@#0", "@-1h"):
            name = f"attack/{'#' if suffix == '@earliest' else 'large'}{suffix}"
            peer.sendall(fx.frame(fx.SUB, number, fx.topic(name)))
            attacker.acted()
    time.sleep(max(0.0, min(2.0, attacker.end - time.monotonic())))


@attack
def make_topics(attacker: Attacker) -> None:
    peer = attacker.connect()
    while attacker.going:
        names = [b"attack/%016x" % attacker.chance.getrandbits(64) for _ in range(200)]
        peer.sendall(b"".join(RHEOS2.request(CREATE, name + b"/" + b"n" * 2000) for name in names))
        attacker.acted(len(names))
        attacker.drain(peer, 0.1)


# --- Time -----------------------------------------------------------------------------------------


@attack
def leave_with_equivalent_patterns(attacker: Attacker) -> None:
    peer, number = attacker.join_fleximq()
    levels = 12
    for index in range(900):
        pattern = "attack"
        for level in range(levels):
            pattern += ("/" if index >> level & 1 else ".") + "+*"[attacker.chance.randrange(2)]
        peer.sendall(fx.frame(fx.SUB, number, fx.topic(pattern)))
        attacker.acted()
    attacker.drain(peer, 0.5)


@attack
def ask_for_all_topics(attacker: Attacker) -> None:
    peer, number = attacker.join_fleximq()
    while attacker.going:
        for path in ("/topics", "/clients", "/stats", "/time"):
            header = fx.routing((1, path)) | fx.request(str(attacker.chance.getrandbits(60)))
            peer.sendall(fx.frame(fx.REQ, number, header))
            attacker.acted()
        attacker.drain(peer, 0.1)


@attack
def send_long_patterns(attacker: Attacker) -> None:
    peer = attacker.join_lamamq()
    for index in range(40):
        for pattern in (b"attack/" + b"+/" * 30_000 + b"#", b"attack/" + b"a/+/" * 15_000):
            peer.sendall(lm.subscribe(index, pattern))
            attacker.acted()
    attacker.drain(peer, 1.0)


# --- Files and connections ------------------------------------------------------------------------


@attack
def hold_idle_connections(attacker: Attacker) -> None:
    beginnings = (b"", b"\xfe", hb.handshake_pub()[:9], lm.authentication(b"n", b"k")[:6], b"\x16")
    for _ in range(100):
        if not attacker.going:
            break
        peer = attacker.connect()
        peer.sendall(attacker.chance.choice(beginnings))
        attacker.acted()
    time.sleep(max(0.0, min(2.0, attacker.end - time.monotonic())))


@attack
def stall_tls_handshakes(attacker: Attacker) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + attacker.chance.randbytes(200)
    for _ in range(30):
        peer = attacker.connect(attacker.target.tls)
        peer.sendall(hello[: attacker.chance.randrange(1, len(hello))])
        attacker.acted()
    time.sleep(max(0.0, min(2.0, attacker.end - time.monotonic())))


@attack
def send_mutated_streams(attacker: Attacker) -> None:
    wholes = [
        hb.handshake_pub() + hb.publish(7, b"value") * 3,
        lm.authentication(b"n") + lm.CHOICE + lm.push(1, b"attack/a", b"v") * 3,
        RHEOS1.request(CREATE, b"attack/a") + RHEOS1.request(PUBLISH, b"attack/a", b"v"),
        RHEOS2.request(CREATE, b"attack/a") + RHEOS2.request(PUBLISH, b"attack/a", b"v"),
        fx.frame(fx.JOIN, 0) + fx.frame(fx.PUB, 1000, fx.topic("attack/a"), pack(b"v")),
    ]
    while attacker.going:
        (data,) = mutants(wholes, count=1, seed=attacker.chance.getrandbits(32))
        peer = attacker.connect()
        with contextlib.suppress(OSError):
            peer.sendall(data)
            attacker.drain(peer, 0.02)
        attacker.leave()
        attacker.acted()


# --- Log-ins --------------------------------------------------------------------------------------


@attack
def guess_passwords(attacker: Attacker) -> None:
    while attacker.going:
        peers = [attacker.connect() for _ in range(10)]
        for peer in peers:
            password = f"guess-{attacker.chance.getrandbits(32)}"
            header = {"auth": {"type": "basic", "username": "honest", "password": password}}
            peer.sendall(fx.frame(fx.JOIN, 0, header))
            attacker.acted()
        for peer in peers[: attacker.chance.randrange(len(peers))]:
            attacker.drain(peer, 0.2)
        attacker.leave()


# --- UDP ------------------------------------------------------------------------------------------


@attack
def send_small_datagrams(attacker: Attacker) -> None:
    """Handshakes of many ports, none of which answers."""
    sockets = []
    for _ in range(100):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind((attacker.address, 0))
        attacker._sockets.append(sender)
        sender.sendto(hb.handshake_sub(bytes(range(20)), b"u"), attacker.target.udp)
        sender.settimeout(0)
        sockets.append(sender)
        attacker.acted()
    time.sleep(max(0.0, min(1.0, attacker.end - time.monotonic())))
    for sender in sockets:
        with contextlib.suppress(OSError):
            while found := sender.recv(65_535):
                attacker.look(found)


# --- HTTP -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def http_connection(attacker: Attacker) -> Iterator[http.client.HTTPConnection]:
    host, port = attacker.target.http
    connection = http.client.HTTPConnection(
        host, port, timeout=2, source_address=(attacker.address, 0)
    )
    try:
        yield connection
    finally:
        connection.close()


REQUESTS: Final[tuple[tuple[str, str, bytes | None, dict[str, str]], ...]] = (
    ("POST", "/api/publish", b"[" * 100_000, {"Content-Type": "application/json"}),
    ("POST", "/api/publish?topic=honest/0", b"forged", {}),
    ("GET", "/api/topics", None, {}),
    ("GET", "/api/clients", None, {}),
    ("GET", "/api/subscriptions", None, {}),
    ("GET", "/api/log", None, {}),
    ("GET", "/api/groups", None, {}),
    ("GET", "/metrics", None, {"Host": "attacker.example"}),
    ("GET", "/api/clients", None, {"Authorization": "Basic aG9uZXN0Omd1ZXNz"}),
    ("POST", "/api/publish", b"{}", {"Origin": "https://attacker.example"}),
    ("DELETE", "/api/topics/honest%2F0", None, {}),
)


@attack
def abuse_http(attacker: Attacker) -> None:
    while attacker.going:
        with contextlib.suppress(http.client.HTTPException), http_connection(attacker) as client:
            for method, path, body, headers in REQUESTS:
                client.request(method, path, body, headers)
                attacker.look(client.getresponse().read())
                attacker.acted()
        time.sleep(0.05)


@attack
def send_http_slowly(attacker: Attacker) -> None:
    peers = [attacker.connect(attacker.target.http) for _ in range(30)]
    for peer in peers:
        peer.sendall(b"POST /api/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 15000000\r\n\r\n")
        attacker.acted()
    while attacker.going:
        for peer in peers:
            peer.sendall(b"x")
        time.sleep(0.2)


# --- Flight ---------------------------------------------------------------------------------------


def damaged_rows(chance: random.Random) -> pa.RecordBatch:
    """Rows whose offsets point anywhere."""

    def texts(kind: pa.DataType) -> pa.Array:
        far = chance.choice((-(1 << 20), 5000, 1 << 20, 1 << 30))
        offsets = pa.array((0, far, 2), pa.int32()).buffers()[1]
        return pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(b"ab")])

    columns: dict[str, Any] = {"topic": pa.array(["attack/a"] * 2), "value": pa.array([b"v", b"w"])}
    name = chance.choice(("topic", "value", "key"))
    columns[name] = texts(pa.utf8() if name == "topic" else pa.binary())
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def flight_client(attacker: Attacker, *, token: bool) -> FlightClient:
    """A client with the attackers' token, or with a wrong one: its address is that of others."""
    return FlightClient(attacker.target.flight, token=attacker.target.token if token else "wrong")


def read_by_flight(attacker: Attacker, client: FlightClient, **request: Any) -> None:
    bounds = client.bounds()[0]
    for batch in client.read(ReadRange(start=bounds.horizon, end=bounds.end, **request)):
        for value in batch.column("value").to_pylist():
            attacker.look(value or b"")


def quietly(act: Callable[[], object]) -> None:
    """Do something that the broker refuses in most cases."""
    with contextlib.suppress(Exception):
        act()


@attack
def send_damaged_arrow(attacker: Attacker) -> None:
    with flight_client(attacker, token=attacker.chance.random() < 0.8) as client:
        for epoch in range(20):
            rows = damaged_rows(attacker.chance)
            writer = f"attacker-{attacker.chance.getrandbits(40)}"
            quietly(lambda: client.stage([rows], writer=writer, epoch=epoch, partition=0))  # noqa: B023
            quietly(lambda: client.publish_epoch(writer, epoch, [0]))  # noqa: B023
            attacker.acted(2)


@attack
def read_forbidden_tables(attacker: Attacker) -> None:
    with flight_client(attacker, token=True) as client:
        for request in (
            {"expression": "(.+)+!"},
            {"expression": "honest/.*"},
            {"topics": ["honest/0"]},
            {"patterns": ["#"]},
            {},
        ):
            quietly(lambda: read_by_flight(attacker, client, **request))  # noqa: B023
            attacker.acted()
        quietly(lambda: client.commit_group("honest", {0: 0}))
        quietly(client.groups)
        attacker.acted(2)


@attack
def send_large_flight_bodies(attacker: Attacker) -> None:
    options = [("grpc.max_send_message_length", -1)]
    with pf.FlightClient(attacker.target.flight, generic_options=options) as client:
        call = pf.FlightCallOptions(timeout=2.0, headers=[(b"authorization", b"Bearer wrong")])
        body = bytes(40 * MIB)
        for kind in ("groups", "topics", "unknown"):
            quietly(lambda: list(client.do_action(pf.Action(kind, body), call)))  # noqa: B023
            attacker.acted()


@attack
def stall_flight_reads(attacker: Attacker) -> None:
    with pf.FlightClient(attacker.target.flight) as client:
        headers = [(b"authorization", b"Bearer " + attacker.target.token.encode())]
        call = pf.FlightCallOptions(headers=headers, timeout=3.0)
        with flight_client(attacker, token=True) as asking:
            bounds = asking.bounds()[0]
        request = ReadRange(start=bounds.horizon, end=bounds.end, patterns=["attack/#"])
        readers = []
        for _ in range(10):
            ticket = pf.Ticket(msgspec.json.encode(request))
            quietly(lambda: readers.append(client.do_get(ticket, call)))  # noqa: B023
            attacker.acted()
        time.sleep(max(0.0, min(2.0, attacker.end - time.monotonic())))
        for reader in readers:
            quietly(reader.cancel)


def main() -> None:
    target = msgspec.json.decode(sys.argv[1], type=Target)
    seconds, count, seed = float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    names = sys.argv[5:]
    attacks = [each for each in ATTACKS if not names or each.__name__ in names]
    # The attackers' own work must not be what the honest clients feel: one processor is theirs.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    report = Report()
    end = time.monotonic() + seconds
    attackers = [
        Attacker(number, target, report, random.Random(seed + number)) for number in range(count)
    ]
    threads = [threading.Thread(target=each.run, args=(list(attacks), end)) for each in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main()
