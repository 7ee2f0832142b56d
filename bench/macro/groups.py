"""Throughput of consumer groups, and of NATS, JetStream and Redis in the same run.

    python -m bench.macro.groups [--save] [--quick] [--rounds 2] [--only rheos2 redis]

One publisher sends messages of 100 bytes as fast as they are acknowledged, or read where nothing
acknowledges them. A group of one member and one of eight share them; all members are in one
process, acknowledge what they get, and count it. A figure is messages divided by the time from the
first byte sent to the last delivery, acknowledgments included. Rounds alternate; the best counts.

`memory` compares what no disk is asked for: Penstock's log in a folder of /dev/shm with durability
`os`, core NATS, which keeps nothing, a memory stream of JetStream, and Redis without a file.
`fsync` compares what is on disk before it is acknowledged: Penstock's default, a file stream of
JetStream with `sync_interval: always`, and Redis with `appendfsync always`. `plain` is a
subscription without a group, to the same broker.
"""

import argparse
import contextlib
import json
import multiprocessing
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.macro.group_members import (
    GROUP,
    STREAM,
    JetstreamMember,
    Member,
    NatsMember,
    RedisMember,
    penstock_member,
)
from bench.macro.intake import (
    COUNTERS,
    WINDOW,
    WINDOWS,
    Counter,
    Jetstream,
    JetstreamCounter,
    load,
)
from bench.macro.peers import (
    HOST,
    NATS_SETTINGS,
    build_newest_nats,
    free_port,
    nats_path,
    nats_version,
    redis_path,
    redis_version,
)
from bench.macro.stores import Store, data_folder, penstock_store
from bench.macro.wires import CHANNEL, WIRES, Nats, redis_command
from bench.results import save
from penstock.protocols import PROTOCOLS

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

VALUE = bytes(range(100))
WRITE_BYTES = 64 * 1024
SECONDS_MAX = 60
MEMBERS = (1, 8)
OF_PLAIN_MIN = 0.5
"""Target ratio of a group of one in memory to a plain subscription."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (a file system in memory, not a place for secrets)
UNACKED_MAX = 20_000
"""Unacknowledged messages of a group, in every system that has such a limit."""
CONFIG = f"[groups]\nunacked_max = {UNACKED_MAX}\n[herald.replay]\n" + "".join(
    f'{CHANNEL + members} = "@group={GROUP}-{members}"\n' for members in MEMBERS
)
"""Settings of Penstock. Herald's members use the channels; each number of members has a group of
its own."""


class System(NamedTuple):
    """A broker under load."""

    open_publisher: Callable[[socket.socket], Callable[[bytes], bytes]]
    counter: Callable[[], Counter] | None
    open_member: Callable[[socket.socket], Member]
    window: int = WINDOW
    prepare: Callable[[socket.socket], None] = lambda _: None


class RedisCounter(Counter):
    """Counts the ids that Redis answers entries with."""

    def __init__(self) -> None:
        self._is_partial = False

    def count(self, data: memoryview) -> int:
        found = bytes(data)
        if b"-ERR" in found:
            raise SystemExit(f"Redis refused an entry: {found[:200]!r}")
        return found.count(b"$")


def penstock_system(name: str, members: int) -> System:
    wire = type(WIRES[name])(f"channel/{CHANNEL + members}")
    start = f"@group={GROUP}-{members}" if members else ""
    return System(
        wire.open_publisher,
        COUNTERS[name] if wire.acknowledged_bytes else None,
        lambda peer: penstock_member(wire, peer, VALUE, start=start),
    )


def nats_system() -> System:
    return System(Nats().open_publisher, None, lambda peer: NatsMember(peer, VALUE))


def jetstream_system(storage: str) -> System:
    def prepare(peer: socket.socket) -> None:
        wire = Nats()
        wire.connect(peer)
        stream = {"name": STREAM.decode(), "subjects": [wire.subject.decode()], "storage": storage}
        consumer = {
            "stream_name": STREAM.decode(),
            "config": {
                "durable_name": GROUP,
                "ack_policy": "explicit",
                "max_ack_pending": UNACKED_MAX,
            },
        }
        peer.sendall(b"SUB made 1\r\n")
        _request(peer, b"$JS.API.STREAM.CREATE.%b" % STREAM, stream)
        _request(
            peer, b"$JS.API.CONSUMER.DURABLE.CREATE.%b.%b" % (STREAM, GROUP.encode()), consumer
        )

    def open_publisher(peer: socket.socket) -> Callable[[bytes], bytes]:
        wire = Jetstream()
        wire.connect(peer)
        peer.sendall(b"SUB a 2\r\n")
        return lambda value: b"PUB %b a %d\r\n%b\r\n" % (wire.subject, len(value), value)

    return System(
        open_publisher,
        JetstreamCounter,
        lambda peer: JetstreamMember(peer, VALUE),
        window=max(WINDOWS["jetstream"]),
        prepare=prepare,
    )


def _request(peer: socket.socket, subject: bytes, content: dict[str, Any]) -> None:
    data = json.dumps(content).encode()
    peer.sendall(b"PUB %b made %d\r\n%b\r\n" % (subject, len(data), data))
    answer = b""
    while not answer.endswith(b"}\r\n"):
        answer += peer.recv(65_536)
    if b'"error"' in answer:
        raise SystemExit(f"JetStream refused a request: {answer!r}")


def redis_system() -> System:
    def prepare(peer: socket.socket) -> None:
        peer.sendall(redis_command(b"DEL", STREAM))
        peer.recv(100)
        group = redis_command(b"XGROUP", b"CREATE", STREAM, GROUP.encode(), b"$", b"MKSTREAM")
        if (answer := exchange_line(peer, group)) != b"+OK\r\n":
            raise SystemExit(f"Redis made no group: {answer!r}")

    return System(
        lambda _: lambda value: redis_command(b"XADD", STREAM, b"*", b"v", value),
        RedisCounter,
        lambda peer: RedisMember(peer, VALUE),
        window=20_000,
        prepare=prepare,
    )


def exchange_line(peer: socket.socket, request: bytes) -> bytes:
    peer.sendall(request)
    answer = b""
    while not answer.endswith(b"\n"):
        answer += peer.recv(4096)
    return answer


# --- Load -----------------------------------------------------------------------------------------


def publish(system: System, port: int, count: int, results: "Queue[float]") -> None:
    """Send `count` messages; report when the first was sent and the last was acknowledged."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        frame = system.open_publisher(peer)(VALUE)
        per_write = max(1, min(WRITE_BYTES // len(frame), system.window // 4))
        block = memoryview(frame * per_write)
        pieces = [(block, per_write)] * (count // per_write)
        pieces.append((block[: count % per_write * len(frame)], count % per_write))
        results.put(time.monotonic())
        if system.counter is None:
            for data, _ in pieces:
                peer.sendall(data)
        else:
            load(peer, pieces, system.counter(), system.window)
        results.put(time.monotonic())
        peer.settimeout(None)


def work(  # noqa: PLR0917  (arguments of a process)
    system: System,
    port: int,
    members: int,
    count: int,
    ready: Any,  # noqa: ANN401
    ends: "Queue[float]",
) -> None:
    """Receive `count` messages in a group; report when the last one arrived."""
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(members):
            peer = socket.create_connection((HOST, port), timeout=SECONDS_MAX)
            stack.enter_context(peer)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for acknowledgments
            selector.register(peer, selectors.EVENT_READ, system.open_member(peer))
        ready.release()
        received = 0
        while received < count:
            events = selector.select(SECONDS_MAX)
            if not events:
                raise SystemExit(f"{count - received} messages did not arrive")
            for key, _ in events:
                data = key.fileobj.recv(256 * 1024)  # type: ignore[union-attr]
                if not data:
                    raise SystemExit("the broker closed the connection of a member")
                received += key.data.received(data)
        ends.put(time.monotonic())
        if received != count:
            raise SystemExit(f"{received} messages for {count}")


def run(system: System, port: int, *, count: int, members: int) -> float:
    """Return messages per second of a group with so many members."""
    with socket.create_connection((HOST, port), timeout=SECONDS_MAX) as peer:
        system.prepare(peer)
    context = multiprocessing.get_context("fork")
    ready = context.Semaphore(0)
    starts: Queue[float] = context.Queue()
    ends: Queue[float] = context.Queue()
    receiver = context.Process(target=work, args=(system, port, members, count, ready, ends))
    sender = context.Process(target=publish, args=(system, port, count, starts))
    receiver.start()
    try:
        if not ready.acquire(timeout=SECONDS_MAX):
            raise SystemExit("the members did not get ready")
        sender.start()
        start = starts.get(timeout=SECONDS_MAX)
        end = max(ends.get(timeout=SECONDS_MAX), starts.get(timeout=SECONDS_MAX))
    finally:
        for process in (sender, receiver):
            if process.pid is not None:
                process.join(5)
                process.kill()
    return count / (end - start)


# --- Brokers --------------------------------------------------------------------------------------


@contextlib.contextmanager
def penstock_broker(kind: str) -> Iterator[Store]:
    """`penstock serve`: with its log in memory, or synced on disk."""
    with contextlib.ExitStack() as stack:
        if kind == "fsync":
            yield stack.enter_context(penstock_store("fsync", config=CONFIG))
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=SHARED_MEMORY))
            yield stack.enter_context(penstock_store("os", folder=Path(folder), config=CONFIG))


@contextlib.contextmanager
def jetstream_broker(kind: str) -> Iterator[Store]:
    """nats-server with JetStream."""
    with data_folder() as folder:
        port = free_port()
        sync = "always" if kind == "fsync" else "2m"
        config = folder / "nats.conf"
        config.write_text(
            f'jetstream {{ store_dir: "{folder}/js", sync_interval: {sync} }}\n'
            f"host: {HOST}\nport: {port}\n{NATS_SETTINGS}"
        )
        yield from _served([nats_path(), "-c", str(config)], port, folder)


@contextlib.contextmanager
def redis_broker(kind: str) -> Iterator[Store]:
    """redis-server."""
    with data_folder() as folder:
        port = free_port()
        command = [redis_path(), "--port", str(port), "--bind", HOST, "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "yes" if kind == "fsync" else "no"]
        command += ["--appendfsync", "always"]
        yield from _served(command, port, folder)


def _served(command: list[str], port: int, folder: Path) -> Iterator[Store]:
    store = Store(command, port, folder)
    try:
        yield store
    finally:
        store.end()


# --- Figures --------------------------------------------------------------------------------------


class Run(NamedTuple):
    """One measured combination; 0 members are a plain subscription."""

    system: str
    kind: str
    members: int


def runs_of_penstock(kind: str, names: list[str], count: int) -> Iterator[tuple[Run, float]]:
    for name in names:
        with penstock_broker(kind) as store:
            for members in (0, *MEMBERS):
                system = penstock_system(name, members)
                rate = run(system, store.port, count=count, members=max(1, members))
                yield Run(name, kind, members), rate


def runs_of_peers(kind: str, names: list[str], count: int) -> Iterator[tuple[Run, float]]:
    for members in MEMBERS:
        if "nats" in names and kind == "memory":
            with jetstream_broker(kind) as store:
                yield (
                    Run("nats", kind, members),
                    run(nats_system(), store.port, count=count, members=members),
                )
        if "jetstream" in names:
            few = count // (200 if kind == "fsync" else 4)  # it syncs each message by itself
            with jetstream_broker(kind) as store:
                system = jetstream_system("file" if kind == "fsync" else "memory")
                yield (
                    Run("jetstream", kind, members),
                    run(system, store.port, count=few, members=members),
                )
        if "redis" in names:
            few = count // (8 if kind == "fsync" else 4)
            with redis_broker(kind) as store:
                yield (
                    Run("redis", kind, members),
                    run(redis_system(), store.port, count=few, members=members),
                )


PEERS = ("nats", "jetstream", "redis")


def measure(
    *, rounds: int, count: int, names: list[str], kinds: tuple[str, ...] = ("memory", "fsync")
) -> list[dict[str, Any]]:
    """Return the best figures of every combination."""
    best: dict[Run, float] = {}
    own = [name for name in names if name not in PEERS]
    peers = [name for name in names if name in PEERS]
    for _ in range(rounds):
        for kind in kinds:
            for each, rate in runs_of_penstock(kind, own, count):
                best[each] = max(best.get(each, 0.0), rate)
            for each, rate in runs_of_peers(kind, peers, count // 2):
                best[each] = max(best.get(each, 0.0), rate)
    return [
        {
            "system": each.system,
            "kind": each.kind,
            "members": each.members,
            "value_bytes": len(VALUE),
            "delivered": rate,
            "of_plain": rate / best.get(Run(each.system, each.kind, 0), rate),
        }
        for each, rate in best.items()
    ]


def misses(results: list[dict[str, Any]]) -> list[str]:
    """Return the figures that miss their targets."""
    rates = {Run(row["system"], row["kind"], row["members"]): row["delivered"] for row in results}
    short = []
    for (system, kind, members), rate in rates.items():
        if system in PEERS or not members:
            continue
        where = f"{system}, {kind}, {members} members"
        plain = rates[Run(system, kind, 0)]
        if kind == "memory" and members == 1 and rate < OF_PLAIN_MIN * plain:
            short.append(f"{where}: {rate / plain:.0%} of a plain subscription")
        if members > 1 and rate < rates[Run(system, kind, 1)]:
            short.append(f"{where}: {rate / rates[Run(system, kind, 1)]:.0%} of one member's")
        for peer in PEERS:
            other = rates.get(Run(peer, kind, members), 0.0)
            if rate < other:
                short.append(f"{where}: {rate / other:.0%} of {peer}")
    return short


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short pass: shows that it runs")
    parser.add_argument("--save", action="store_true", help="keep the figures in bench/results")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages of a run")
    parser.add_argument("--only", nargs="*", help="protocols and peers, not all of them")
    parser.add_argument("--kinds", nargs="*", default=["memory", "fsync"])
    arguments = parser.parse_args()
    names = arguments.only or [*PROTOCOLS.labels, *PEERS]
    if set(names) & {"nats", "jetstream"} and not arguments.quick:
        build_newest_nats()
    rounds, count = (1, 40_000) if arguments.quick else (arguments.rounds, arguments.count)
    results = measure(rounds=rounds, count=count, names=names, kinds=tuple(arguments.kinds))
    print("thousand messages of 100 bytes a second; 0 members is a plain subscription")
    print(f"{'':<10} {'kind':<7} {'members':>7} {'delivered':>10} {'of plain':>9}")
    for row in results:
        print(
            f"{row['system']:<10} {row['kind']:<7} {row['members']:>7}"
            f" {row['delivered'] / 1e3:>10.0f} {row['of_plain']:>9.0%}"
        )
    if arguments.save:
        versions = {"nats_version": nats_version(), "redis_version": redis_version()}
        print(f"saved to {save('groups', [{**row, **versions} for row in results])}")
    short = misses(results)
    for miss in short:
        print(f"below target: {miss}", file=sys.stderr)
    return 1 if short and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
