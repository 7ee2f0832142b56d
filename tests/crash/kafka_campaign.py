"""A cluster under faults: Kafka brokers, nodes, publishers, and a subscriber that moves.

    publisher "a" ──▶ node 1, which has the faults ─┐
    publisher "b" ──▶ node 2 ───────────────────────┤ Kafka, three brokers
    subscriber    ◀── node 2 or 3 ◀─────────────────┘

Every other message is large enough for the Kafka topic of a namespace; the others are in the first
topic. Publishers go on while a fault happens, so that it hits transactions that are under way.
"""

import contextlib
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.client.errors import ConnectFailed, ConnectionLost, Refused, TimedOut
from penstock.client.sync import connect_sync
from penstock.limits import KAFKA_NAMESPACE_BYTES_MIN
from penstock.protocols.rheos2 import RHEOS2
from tests.support import herald_bytes as herald
from tests.support.herald_bytes import HeraldPeer
from tests.support.kafka_node import TOPIC, Node
from tests.support.served import until
from tools.kafka import KafkaBroker

CHANNEL = 7
PADDING = b" " * KAFKA_NAMESPACE_BYTES_MIN
NAME = "faults"
FAULTY, STEADY, THIRD = 1, 2, 3
"""Numbers of nodes; only the first has faults of its own."""
PAUSE_SECONDS = 0.005
"""Between two messages of a publisher: the machine has other work to do."""
ANSWER_SECONDS = 4.0
"""How long a publisher waits for an acknowledgment."""
RECOVERY_SECONDS = 120.0
SILENT_SECONDS = 0.5
STOP_SECONDS = 2.0
AFTERWARDS = 20
"""Messages that must be acknowledged after each fault."""
STARTS_MAX = 5
DISK_BYTES = 2 << 30
KAFKA_SETTINGS = {
    # The loss of a broker is noticed after three seconds instead of nine.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}


class Publisher:
    """Publishes one message after the other in a thread; an error is no acknowledgment.

    A value names the publisher, the connection and the message.
    """

    def __init__(self, name: str, node: Callable[[], Node]) -> None:
        self.name = name
        self._node = node
        self.acknowledged: list[tuple[bytes, uuid.UUID]] = []
        self.sent = 0
        self._connections = 0
        self._stopping = False
        self._going = threading.Event()
        self._still = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Return when no message is under way."""
        self._going.clear()
        assert self._still.wait(RECOVERY_SECONDS)

    def resume(self) -> None:
        self._going.set()

    def stop(self) -> None:
        self._stopping = True
        self._going.set()
        self._thread.join(RECOVERY_SECONDS)

    def until_acknowledged(self, more: int) -> None:
        """Wait for acknowledgments."""
        count = len(self.acknowledged) + more
        until(
            lambda: len(self.acknowledged) >= count,
            f"{more} acknowledgments for publisher {self.name}",
            seconds_max=RECOVERY_SECONDS,
            look_seconds=0.05,
        )

    def _run(self) -> None:
        while not self._stopping:
            with contextlib.suppress(ConnectFailed, ConnectionLost, Refused, TimedOut):
                self._use(self._node())
            time.sleep(0.05)

    def _use(self, node: Node) -> None:
        """Publish until the node is another one."""
        self._wait()
        with connect_sync(node.address, protocol=RHEOS2, timeout=ANSWER_SECONDS) as client:
            self._connections += 1
            for number in range(1 << 60):
                if not self._going.is_set():
                    self._wait()
                if self._stopping or self._node() is not node:
                    return
                self.sent += 1
                value = b"%s.%d.%d" % (self.name.encode(), self._connections, number)
                if number % 2:
                    value += PADDING
                answer = client.publish(TOPIC, value)
                assert answer is not None
                self.acknowledged.append((value, answer))
                time.sleep(PAUSE_SECONDS)

    def _wait(self) -> None:
        self._still.set()
        self._going.wait()
        self._still.clear()


class Listener:
    """A herald subscriber that resumes on one of several nodes after the other."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self.values: list[bytes] = []
        self._peer = self._join(bytes([CHANNEL]))
        self._lock = threading.Lock()  # held while the socket is used
        self._wanted = False  # the thread lets another one have the lock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _join(self, channels: bytes) -> HeraldPeer:
        node = self._nodes[0]
        self._nodes = [*self._nodes[1:], node]
        peer = HeraldPeer(address=("127.0.0.1", node.port))
        peer.socket.settimeout(60)
        return peer.join(herald.handshake_sub(channels, b"listener"))

    def _run(self) -> None:
        while not self._closing.is_set():
            if not self._wanted:
                with self._lock:
                    self._read(0.1)
            time.sleep(0.001)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Have the socket, though the thread reads all the time."""
        self._wanted = True
        with self._lock:
            self._wanted = False
            yield

    def _read(self, seconds: float) -> bool:
        """Take a frame, if one comes in time; return whether it came."""
        readable, _, _ = select.select([self._peer.socket], [], [], seconds)
        if not readable:
            return False
        while readable:
            self._take()
            readable, _, _ = select.select([self._peer.socket], [], [], 0)
        return True

    def _take(self) -> None:
        magic, opcode, length = struct.unpack("<HBI", self._peer.receive(7))
        body = self._peer.receive(length)
        assert magic == 0xCAFE
        if opcode == 0x13:
            self.values.append(body[9:])
        else:
            assert opcode == 0x20
            self._peer.send(herald.frame(0x21))

    def read(self, *last: bytes) -> None:
        """Wait until these values have come, and nothing more comes."""
        missing = set(last)
        looked = 0

        def arrived() -> bool:
            nonlocal looked
            count = len(self.values)
            missing.difference_update(self.values[max(looked - 10_000, 0) : count])
            looked = count
            return not missing

        try:
            until(arrived, "", seconds_max=RECOVERY_SECONDS, look_seconds=0.02)
        except AssertionError:
            raise AssertionError(f"{sorted(missing)} do not arrive") from None
        with self._using():
            while self._read(SILENT_SECONDS):
                pass

    def move(self) -> None:
        """Leave without a word, and resume on the next node."""
        with self._using():
            self._peer.socket.close()
            self._peer = self._join(b"")

    def close(self) -> None:
        self._closing.set()
        self._thread.join(RECOVERY_SECONDS)
        self._peer.socket.close()


class Disk:
    """A file system in memory for a broker, which can be full."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._mount(str(DISK_BYTES), "tmpfs", "-t", "tmpfs")

    def _mount(self, size: str, *arguments: str) -> None:
        mount = shutil.which("mount")
        assert mount is not None
        command = [mount, "-o", f"size={size}", *arguments, str(self._folder)]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603

    def fill(self) -> None:
        """Leave no room for one more byte."""
        while True:
            found = os.statvfs(self._folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            with contextlib.suppress(subprocess.CalledProcessError):  # it has grown meanwhile
                self._mount(f"{used // 1024}k", "-o", "remount")
                return

    def free(self) -> None:
        self._mount(str(DISK_BYTES), "-o", "remount")

    def close(self) -> None:
        umount = shutil.which("umount")
        assert umount is not None
        subprocess.run([umount, "-l", str(self._folder)], check=False)  # noqa: S603


@contextlib.contextmanager
def mounted_disks(folder: Path, count: int) -> Iterator[list[Disk]]:
    """Lend a disk to each broker; none where file systems cannot be mounted."""
    with contextlib.ExitStack() as stack:
        disks = []
        if os.geteuid() == 0 and shutil.which("mount") and shutil.which("umount"):
            with contextlib.suppress(subprocess.CalledProcessError):
                for number in range(1, count + 1):
                    disk = Disk(folder / str(number) / "data")
                    stack.callback(disk.close)
                    disks.append(disk)
        yield disks if len(disks) == count else []


class Campaign:
    """Nodes, their publishers, and what became of each message."""

    def __init__(self, brokers: list[KafkaBroker], disks: list[Disk], folder: Path) -> None:
        self.brokers = brokers
        self.disks = disks
        self.bootstrap = ",".join(each.address for each in brokers)
        self._folder = folder
        self._nodes = 0
        self.node = self.start()
        self.observers = [self.start(number) for number in (STEADY, THIRD)]
        self.listener = Listener(self.observers)
        self.publishers = {
            FAULTY: Publisher("a", lambda: self.node),
            STEADY: Publisher("b", lambda: self.observers[0]),
        }
        for publisher in self.publishers.values():
            publisher.resume()

    # --- Parts ------------------------------------------------------------------------------------

    def start(self, number: int = FAULTY) -> Node:
        """Start a node, as a supervisor does: again while Kafka elects its leaders."""
        for left in reversed(range(STARTS_MAX)):
            self._nodes += 1
            name = f"{self._nodes}-node-{number}"
            node = Node(
                self.bootstrap,
                self._folder / name,
                topic=NAME,
                number=number,
                commit_seconds_max=20,
                errors=self._folder / f"{name}.txt",
                # Otherwise a subscriber sees messages of its node whose commit fails.
                PENSTOCK_STORAGE__DELIVER="committed",
                PENSTOCK_STORAGE__KAFKA=f'{{ namespaces = {{ "{TOPIC}" = "{NAME}-apart" }} }}',
            )
            try:
                return node.__enter__()
            except AssertionError:
                self.end(node)
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def end(self, node: Node) -> None:
        node.__exit__(None, None, None)

    def until_fenced(self, node: Node) -> None:
        """Wait for the end of a process that another one has replaced."""
        assert node.process.wait()[0] == 2
        self.end(node)

    def until_whole(self) -> None:
        """Wait until all brokers are in sync: another fault would be one too many."""
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

        def whole() -> bool:
            with contextlib.suppress(KafkaException):
                topics = client.list_topics(timeout=5).topics
                return all(
                    len(part.isrs) == len(self.brokers)
                    for topic in topics.values()
                    for part in topic.partitions.values()
                )
            return False

        until(whole, "all brokers in sync", seconds_max=300, look_seconds=0.2)

    def observe(self, check: Callable[[], None] = lambda: None) -> None:
        """Let the subscriber read everything, check it, and resume on another node."""
        for publisher in self.publishers.values():
            publisher.pause()
        acknowledged = (each.acknowledged for each in self.publishers.values())
        self.listener.read(*(each[-1][0] for each in acknowledged if each))
        check()
        self.listener.move()
        for publisher in self.publishers.values():
            publisher.resume()

    def until_recovered(self) -> None:
        for publisher in self.publishers.values():
            publisher.until_acknowledged(AFTERWARDS)

    def close(self) -> None:
        for publisher in self.publishers.values():
            publisher.stop()
        self.listener.close()
        for node in (self.node, *self.observers):
            self.end(node)

    # --- Faults -----------------------------------------------------------------------------------

    def cause(self, kind: str, chance: random.Random, *, stop_seconds: float) -> None:
        """Cause a fault, and wait until messages are acknowledged again."""
        time.sleep(chance.uniform(0, 0.2))  # at any point of a transaction
        broker = chance.randrange(len(self.brokers))
        match kind:
            case "node killed":
                self._kill_node()
            case "broker killed":
                self.brokers[broker].kill()
                self._restart(broker)
            case "both killed":
                self.brokers[broker].kill()
                self._kill_node()
                self._restart(broker)
            case "node stopped":
                self._signal(self.node, signal.SIGSTOP)
                time.sleep(STOP_SECONDS)
                self._signal(self.node, signal.SIGCONT)
            case "node replaced":
                old, self.node = self.node, self.start()
                self.until_fenced(old)
            case "two at once":
                self._start_two()
            case "zombie":
                self._zombie(stop_seconds)
            case "disk full":
                self._fill([broker])
            case "all disks full":
                self._fill([*range(len(self.disks))])
            case _:
                raise AssertionError(kind)
        self.until_recovered()

    def _kill_node(self) -> None:
        self.end(self.node)
        self.node = self.start()

    def _restart(self, *numbers: int) -> None:
        """Start brokers again; with most of them left, messages are acknowledged before that."""
        if 2 * len(numbers) < len(self.brokers):
            self.until_recovered()
        for number in numbers:
            self.brokers[number].start()
        self.until_whole()

    @staticmethod
    def _signal(node: Node, number: signal.Signals) -> None:
        node.process.popen.send_signal(number)

    def _start_two(self) -> None:
        """Start two processes with the number of a third: one of them is left."""
        old = self.node
        with ThreadPoolExecutor(2) as threads:
            both = list(threads.map(lambda _: self._try_start(), range(2)))
        new = [each for each in both if each is not None]
        if len(new) == 2:
            until(
                lambda: any(each.process.popen.poll() is not None for each in new),
                "one of two nodes ends",
                seconds_max=60,
                look_seconds=0.05,
            )
        alive = [each for each in new if each.process.popen.poll() is None]
        for each in new:
            if each not in alive:
                self.until_fenced(each)
        self.node = alive[0] if alive else self.start()
        self.until_fenced(old)

    def _try_start(self) -> Node | None:
        try:
            return self.start()
        except AssertionError:
            return None

    def _zombie(self, seconds: float) -> None:
        """Stop a node, replace it, and let it wake up in the world of its successor."""
        old = self.node
        self._signal(old, signal.SIGSTOP)
        ends = time.monotonic() + seconds
        self.node = self.start()
        self.publishers[FAULTY].until_acknowledged(AFTERWARDS)
        time.sleep(max(ends - time.monotonic(), 0))
        self._signal(old, signal.SIGCONT)
        self.until_fenced(old)

    def _fill(self, numbers: list[int]) -> None:
        """Fill disks of brokers until these have ended, and free them."""
        for number in numbers:
            self.disks[number].fill()
        brokers = [self.brokers[number] for number in numbers]

        def ended() -> bool:
            return all(each.process is None or each.process.poll() is not None for each in brokers)

        until(ended, "brokers with full disks end", seconds_max=60, look_seconds=0.1)
        for broker in brokers:
            broker.kill()
        if len(numbers) == 1:
            self.until_recovered()
        for number in numbers:
            self.disks[number].free()
        self._restart(*numbers)
