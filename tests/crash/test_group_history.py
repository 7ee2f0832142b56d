"""Seeded histories of a group, with processes: members join, leave, stall and are killed.

Brokers are killed too, on a log on disk and on two nodes with a log in Kafka, where the other node
takes the group over. Each message is acknowledged in the end or in the dead letters, and none comes
again. With `ordered=topic`, first deliveries of a topic are in order.

Members of Rheos and herald do not acknowledge: their system does. The promise is that a message
whose bytes it has acknowledged is done, and that any other one is delivered again. The test knows
these bytes exactly, also those of a member that was killed before it read them.

`PENSTOCK_GROUP_FAULTS=20` runs more faults, `PENSTOCK_GROUP_SEED=3` another history.
"""

import contextlib
import itertools
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.client import connect_sync
from penstock.client.errors import ConnectFailed, PeerError, Refused, TimedOut
from penstock.protocols import PROTOCOLS
from tests.crash.group_member import (
    ACKNOWLEDGES,
    CHANNEL,
    GROUP,
    ORDERED_GROUP,
    ORDERED_PATTERN,
    PATTERN,
    VALUE,
    acknowledged_bytes,
)
from tests.support.running import environment
from tests.support.served import Served, free_port, until
from tools.kafka import KafkaBroker

FAULTS = int(os.environ.get("PENSTOCK_GROUP_FAULTS", "2"))
MANY = "PENSTOCK_GROUP_FAULTS" in os.environ
"""Otherwise it is a short pass: `test_group_kill` has one for the log on disk."""
SEED = int(os.environ.get("PENSTOCK_GROUP_SEED", "1"))
MESSAGES = 100
"""Messages between two faults."""
TOPICS = 6
"""Topics of an ordered group."""
SECONDS_MAX = 90.0
ACK_WAIT_SECONDS = 1.0
READ_BYTES_MAX = 16 << 20
ROOT = Path(__file__).parents[2]


class Seen(NamedTuple):
    """A message that a member got, and when."""

    value: str
    seconds: float


class MemberProcess:
    """A member, and what it has said so far."""

    def __init__(self, urls: list[str], protocol: str, folder: Path, *, is_ordered: bool) -> None:
        self.protocol = protocol
        self.is_asked = protocol in ACKNOWLEDGES
        self.joined = 0
        self.seen: list[Seen] = []
        self.done: set[str] = set()
        self._folder = folder
        self._left: dict[str, bytes] = {}  # by connection: what its system had when it was killed
        self._control, other = socket.socketpair()
        ordered = {"PENSTOCK_TEST_ORDERED": "1"} if is_ordered else {}
        with other:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "tests.crash.group_member", protocol, *urls],
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                pass_fds=[other.fileno()],
                env=environment(
                    PENSTOCK_TEST_FOLDER=str(folder),
                    PENSTOCK_TEST_CONTROL=str(other.fileno()),
                    **ordered,
                ),
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["seen", value, seconds]:
                    self.seen.append(Seen(value, float(seconds)))
                case ["done", value]:
                    self.done.add(value)
                case ["joined"]:
                    self.joined += 1

    def connections(self) -> list[list[str]]:
        """Return the values of each connection that its system has acknowledged, in order."""
        if self.is_asked:
            return []
        files = sorted(
            self._folder.glob(f"{self._process.pid}-*"), key=lambda file: file.stat().st_ctime_ns
        )
        return [
            [
                value.decode()
                for value in VALUE.findall(
                    acknowledged_bytes(file.read_bytes(), self._left.get(file.name, b""))
                )
            ]
            for file in files
        ]

    def acknowledged(self) -> set[str]:
        """Return the values that the member has acknowledged, or its system."""
        return self.done.copy() if self.is_asked else set().union(*self.connections())

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self._process.terminate()
        assert self._process.wait(SECONDS_MAX) == 0
        self._end()

    def kill(self) -> None:
        """Kill -9; the brokers are stopped meanwhile, so that no more bytes come."""
        self._process.kill()
        self._process.wait(SECONDS_MAX)
        self._control.setblocking(False)  # noqa: FBT003
        with contextlib.suppress(BlockingIOError):
            while True:
                name, descriptors, _, _ = socket.recv_fds(self._control, 64, 1)
                if not descriptors:
                    break
                with socket.socket(fileno=descriptors[0]) as copy:
                    self._left[name.decode()] = _unread(copy)
        self._end()
        if self.is_asked and self.seen and not self.seen[-1].value.endswith("!>"):
            self.done.add(self.seen[-1].value)  # it may have acknowledged it, and not said so

    def _end(self) -> None:
        self._control.close()
        self._reader.join(SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _unread(connected: socket.socket) -> bytes:
    """Return the bytes that the system has for a process; they stay there, so close resets."""
    found = b""

    def is_all() -> bool:
        nonlocal found
        before = found
        with contextlib.suppress(OSError):
            found = connected.recv(READ_BYTES_MAX, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return found == before

    until(is_all, "all bytes", look_seconds=0.05)
    return found


class History:
    """Brokers, the members of a group, and everything that was published."""

    def __init__(self, folder: Path, storages: list[str], seed: int, *, is_ordered: bool) -> None:
        self.randomness = random.Random(seed)
        self.is_ordered = is_ordered
        self.group = ORDERED_GROUP if is_ordered else GROUP
        self.folder = folder
        self.http: list[str] = []
        self.brokers: list[Served] = []
        for number, storage in enumerate(storages):
            self.http.append(f"127.0.0.1:{free_port()}")
            self.brokers.append(
                Served(
                    folder / str(number),
                    f"""
                    {storage}
                    [http]
                    address = "{self.http[-1]}"
                    [herald]
                    replay = {{ {CHANNEL} = "@group={GROUP}" }}
                    [groups]
                    ack_wait_seconds = {ACK_WAIT_SECONDS}
                    deliveries_max = 3
                    """,
                )
            )
        self.running = set(range(len(storages)))
        self.published: list[str] = []
        self.members: dict[str, MemberProcess] = {}
        self.gone: list[MemberProcess] = []
        self.counts: Counter[str] = Counter()

    @property
    def protocols(self) -> tuple[str, ...]:
        """Protocols of members. A channel of herald is one topic, which has no order to share."""
        if not MANY:  # a process takes a second to start
            return (*ACKNOWLEDGES, "rheos2" if self.is_ordered else "herald")
        return tuple(
            label for label in PROTOCOLS.labels if not (self.is_ordered and label == "herald")
        )

    @property
    def urls(self) -> list[str]:
        return [f"tcp://{host}:{port}" for host, port in (each.address for each in self.brokers)]

    def start(self) -> None:
        for broker in self.brokers:
            broker.start()
        self.join(*self.protocols)

    # --- Members

    def join(self, *protocols: str) -> None:
        for protocol in protocols:
            self.members[protocol] = MemberProcess(
                self.urls, protocol, self.folder, is_ordered=self.is_ordered
            )
        for protocol in protocols:
            self._await_joined(self.members[protocol], 0)

    @staticmethod
    def _await_joined(member: MemberProcess, before: int) -> None:
        until(
            lambda: member.joined > before,
            f"a member of {member.protocol}",
            seconds_max=SECONDS_MAX,
        )

    def part(self, protocol: str, *, killed: bool = False) -> None:
        member = self.members.pop(protocol)
        if killed:
            with self.brokers_stopped():
                member.kill()
        else:
            member.leave()
        self.gone.append(member)

    @contextlib.contextmanager
    def brokers_stopped(self) -> Iterator[None]:
        running = [self.brokers[number] for number in self.running]
        for broker in running:
            broker.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for broker in running:
                broker.signal(signal.SIGCONT)

    def everybody(self) -> list[MemberProcess]:
        return [*self.members.values(), *self.gone]

    def acknowledged(self) -> set[str]:
        return set().union(*(member.acknowledged() for member in self.everybody()))

    # --- Messages

    def publish(self, count: int = MESSAGES) -> None:
        """Publish values that name node, topic and number; some are refused by members."""
        node = self.randomness.choice(sorted(self.running))
        first = len(self.published)
        by_topic: dict[str, list[str]] = defaultdict(list)
        for number in range(first, first + count):
            topic = number % TOPICS
            name = f"{ORDERED_PATTERN[:-1]}{topic}" if self.is_ordered else PATTERN
            by_topic[name].append(f"<{node}.{topic}.{number}{'!' * (number % 40 == 7)}>")
        with connect_sync(self.urls[node], protocol="lamamq", timeout=30) as client:
            for name, values in by_topic.items():
                client.publish_many(name, [value.encode() for value in values])
        self.published += itertools.chain(*by_topic.values())

    def dead(self, wanted: set[str]) -> set[str]:
        """Return the values of dead letters, all of `wanted` if they are there."""
        found: set[str] = set()
        node = min(self.running)
        with connect_sync(self.urls[node], protocol="lamamq", timeout=30) as client:
            stream = client.subscribe(f"dead/{self.group}@earliest")
            with contextlib.suppress(TimedOut):
                while True:
                    found.add(stream.get(1 if wanted <= found else 5).value.decode())
        return found

    def figures(self, node: int) -> dict[str, object]:
        with urllib.request.urlopen(f"http://{self.http[node]}/api/groups") as answer:
            groups = json.load(answer)["groups"]
        return next((each for each in groups if each["name"] == self.group), {})

    def owner(self) -> int | None:
        """Return the node that has the members."""
        return next((node for node in self.running if self.figures(node).get("members")), None)

    def is_idle(self) -> bool:
        owner = self.owner()
        if owner is None:
            return False
        figures = self.figures(owner)
        return (figures["lag"], figures["unacknowledged"]) == (0, 0)

    def finish(self) -> None:
        """Wait until the group has nothing to do; then each message must be done or dead."""
        until(self.is_idle, "all messages are done", seconds_max=SECONDS_MAX, look_seconds=0.1)
        expected = {value for value in self.published if not value.endswith("!>")}
        # A member writes its line after it has acknowledged.
        with contextlib.suppress(AssertionError):
            until(lambda: expected <= self.acknowledged(), "lines", seconds_max=5, look_seconds=0.1)
        missing = set(self.published) - self.acknowledged()
        dead = self.dead(missing)
        assert missing <= dead, sorted(missing - dead)[:20]
        innocent = {value for value in dead if not value.endswith("!>")}
        assert not innocent, f"no member refused {sorted(innocent)[:20]}"
        if self.is_ordered:
            self.check_order()

    # --- Order

    def check_order(self) -> None:
        """Values that came once are in the order of their topic, and of the node that wrote them.

        One that came again may be behind others. What a member of Rheos reads, its system
        has acknowledged before, maybe long before: its order is checked in each connection.
        """
        asked = [each for member in self.everybody() if member.is_asked for each in member.seen]
        sequences = [[each.value for each in sorted(asked, key=lambda each: each.seconds)]]
        for member in self.everybody():
            sequences += member.connections()
        times = Counter(itertools.chain(*sequences))
        for sequence in sequences:
            last: dict[str, int] = {}
            for value in sequence:
                if times[value] == 1:
                    topic, _, number = value.strip("<!>").rpartition(".")
                    assert int(number) > last.get(topic, -1), f"{value} after {last[topic]}"
                    last[topic] = int(number)
                    self.counts["checked"] += 1

    # --- Faults

    def plan(self, faults: int) -> list[tuple[str, str]]:
        """Return faults with the protocol that each is for: first one of every kind."""
        randomness, protocols = self.randomness, self.protocols
        if not MANY:
            return [("broker killed", ""), ("member killed", protocols[-1])][:faults]
        found: list[tuple[str, str]] = []
        while len(found) < faults:
            some = [("member killed", protocol) for protocol in protocols]
            some += [("broker killed", ""), ("member stalls", randomness.choice(ACKNOWLEDGES))]
            some += [("member leaves", randomness.choice(protocols))]
            if len(self.brokers) > 1:
                some.append(("node taken over", ""))
            randomness.shuffle(some)
            found += some
        return found[:faults]

    def fault(self, kind: str, protocol: str) -> None:
        self.counts[kind] += 1
        self.publish()
        least = len(self.published) - self.randomness.randrange(1, MESSAGES)
        until(
            lambda: len(self.acknowledged()) + least // 40 >= least - MESSAGES // 10,
            "messages are processed",
            seconds_max=SECONDS_MAX,
            look_seconds=0.02,
        )
        match kind:
            case "broker killed":
                self.broker_killed()
            case "node taken over":
                self.node_taken_over()
            case "member killed":
                if self.randomness.random() < 0.5 or not MANY:  # it has not read all bytes
                    self.members[protocol].pause()
                    self.publish(MESSAGES // 2)
                self.part(protocol, killed=True)
                self.join(protocol)
            case "member stalls":
                self.members[protocol].pause()
                self.publish(MESSAGES // 2)
                before = time.monotonic()
                until(lambda: time.monotonic() - before > 1.5 * ACK_WAIT_SECONDS, "a stall")
                self.members[protocol].resume()
            case _:
                self.part(protocol)
                self.join(protocol)

    def _owner_now(self) -> int:
        until(lambda: self.owner() is not None, "an owner", seconds_max=SECONDS_MAX)
        return self.owner() or 0

    def broker_killed(self) -> None:
        joined = {protocol: member.joined for protocol, member in self.members.items()}
        self.brokers[self._owner_now()].restart()
        if len(self.brokers) > 1:
            for protocol, member in self.members.items():
                self._await_joined(member, joined[protocol])

    def node_taken_over(self) -> None:
        """Kill the node that has the group; it comes back when another node has all members."""
        joined = {protocol: member.joined for protocol, member in self.members.items()}
        node = self._owner_now()
        self.brokers[node].kill()
        self.running.discard(node)
        self.publish(MESSAGES // 2)
        for protocol, member in self.members.items():
            self._await_joined(member, joined[protocol])
        assert self._owner_now() != node
        self.brokers[node].start()
        self.running.add(node)

    # --- End

    def finally_nothing_comes_again(self) -> None:
        """A new member gets a new message, and none before it."""
        for protocol in list(self.members):
            self.part(protocol)
        pattern = ORDERED_PATTERN if self.is_ordered else PATTERN
        topic = pattern.replace("#", "0")

        def is_last() -> bool:
            """Return False if the node does not have the group yet."""
            try:
                with (
                    connect_sync(self.urls[0], protocol="lamamq", timeout=30) as client,
                    client.consume(pattern, group=self.group) as messages,
                ):
                    client.publish(topic, b"last")
                    message = messages.get(SECONDS_MAX)
                    assert message.value == b"last"
                    return message.ack()
            except (PeerError, Refused, ConnectFailed):
                return False

        until(is_last, "the last message", seconds_max=SECONDS_MAX, look_seconds=0.2)

    def summary(self) -> str:
        """Return what happened, and the messages that came to more than one member."""
        acknowledged = [member.acknowledged() for member in self.everybody()]
        times = Counter(itertools.chain(*acknowledged))
        seen = {each.value for member in self.everybody() for each in member.seen}
        unread = set(times) - seen
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return (
            f"{len(self.published)} messages; {kinds};"
            f" {sum(count > 1 for count in times.values())} acknowledged by two members,"
            f" {len(unread)} by the system of a member that did not read them"
        )

    def close(self) -> None:
        for member in self.members.values():
            member.kill()
        for broker in self.brokers:
            broker.kill()


@pytest.mark.parametrize("order", ["spread", "ordered"])
@pytest.mark.parametrize("log", ["disk", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_each_message_is_acknowledged_or_dead_in_the_end(
    log: str, order: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not MANY and (log, order) != ("kafka", "spread"):
        pytest.skip("make crash-groups")
    storages = [""]
    if log == "kafka":
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        topic = f"history-{secrets.token_hex(4)}"
        storages = [
            f"""
            [storage]
            kind = "kafka"
            bootstrap = "{kafka.address}"
            topic = "{topic}"
            node = {node}
            """
            for node in range(2 if MANY else 1)
        ]
    history = History(tmp_path, storages, SEED, is_ordered=order == "ordered")
    try:
        history.start()
        for number, (kind, protocol) in enumerate(history.plan(FAULTS), 1):
            history.fault(kind, protocol)
            if number % 5 == 0:
                history.finish()
        history.finish()
        history.finally_nothing_comes_again()
        sys.stdout.write(f"\n{log}, {order}: seed {SEED}, {history.summary()}\n")
    except BaseException:
        sys.stdout.write("\n".join(broker.output[-4000:] for broker in history.brokers))
        raise
    finally:
        history.close()
