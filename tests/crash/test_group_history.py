"""Seeded histories of a group, with processes: members join, leave, stall and are killed.

The broker is killed too, on a log on disk and on one in Kafka. Each message is acknowledged in the
end or in the dead letters, and none comes again. Members of Rheos and herald cannot tell what they
have processed: they take part between faults, stall, and leave. `PENSTOCK_GROUP_FAULTS=20` runs more
faults, `PENSTOCK_GROUP_SEED=3` another history.
"""

import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import connect_sync
from tests.crash.group_member import ACKNOWLEDGES, GROUP, TOPIC
from tests.support.running import environment
from tests.support.served import Served, free_port, until
from tools.kafka import KafkaBroker

FAULTS = int(os.environ.get("PENSTOCK_GROUP_FAULTS", "1"))
MANY = "PENSTOCK_GROUP_FAULTS" in os.environ
"""Otherwise it is a short pass: `test_group_kill` has one for the log on disk."""
SEED = int(os.environ.get("PENSTOCK_GROUP_SEED", "1"))
MESSAGES = 100
"""Messages between two faults."""
SECONDS_MAX = 90.0
ACK_WAIT_SECONDS = 1.0
OTHERS = ("rheos1", "rheos2", "herald") if MANY else ("herald",)
"""A process takes a second to start: the short pass has one of them."""
KINDS = ("broker killed", "member killed", "member stalls", "member leaves")
ROOT = Path(__file__).parents[2]


class MemberProcess:
    """A member, and what it has said so far."""

    def __init__(self, url: str, protocol: str) -> None:
        self.lines: list[tuple[str, str]] = []
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "tests.crash.group_member", url, protocol],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, value = line.rstrip("\n").partition(" ")
            self.lines.append((kind, value))

    @property
    def has_joined(self) -> bool:
        return bool(self.lines)

    def said(self, kind: str) -> set[str]:
        return {value for each, value in self.lines.copy() if each == kind}

    @contextlib.contextmanager
    def stalled(self) -> Iterator[None]:
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def leave(self) -> None:
        self._process.terminate()
        assert self._process.wait(SECONDS_MAX) == 0
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(SECONDS_MAX)
        self._end()

    def _end(self) -> None:
        self._reader.join(SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


class History:
    """A broker, the members of its group, and everything that was published."""

    def __init__(self, folder: Path, storage: str, seed: int) -> None:
        self.randomness = random.Random(seed)
        self.http = f"127.0.0.1:{free_port()}"
        self.broker = Served(
            folder,
            f"""
            {storage}
            [http]
            address = "{self.http}"
            [herald]
            replay = {{ 7 = "@group={GROUP}" }}
            [groups]
            ack_wait_seconds = {ACK_WAIT_SECONDS}
            deliveries_max = 3
            """,
        )
        self.published: list[str] = []
        self.members: dict[str, MemberProcess] = {}
        self.gone: list[MemberProcess] = []

    @property
    def url(self) -> str:
        host, port = self.broker.address
        return f"tcp://{host}:{port}"

    # --- Members

    def join(self, *protocols: str) -> None:
        for protocol in protocols:
            self.members[protocol] = MemberProcess(self.url, protocol)
        for protocol in protocols:
            member = self.members[protocol]
            until(lambda member=member: member.has_joined, "a member", seconds_max=SECONDS_MAX)

    def part(self, *protocols: str, killed: bool = False) -> None:
        for protocol in protocols:
            member = self.members.pop(protocol)
            if killed:
                member.kill()
            else:
                member.leave()
            self.gone.append(member)

    def done(self) -> set[str]:
        members = [*self.members.values(), *self.gone]
        return set().union(*(member.said("done") for member in members))

    # --- Messages

    def publish(self, count: int = MESSAGES) -> None:
        first = len(self.published)
        values = [f"{each}{'!' * (each % 40 == 7)}" for each in range(first, first + count)]
        with connect_sync(self.url, protocol="lamamq", timeout=30) as client:
            client.publish_many(TOPIC, [value.encode() for value in values])
        self.published += values

    def dead(self) -> set[str]:
        figures = self.figures()
        with connect_sync(self.url, protocol="lamamq", timeout=30) as client:
            stream = client.subscribe(f"dead/{GROUP}@earliest", timeout=SECONDS_MAX)
            return {next(stream).value.decode() for _ in range(int(str(figures["dead"])))}

    def figures(self) -> dict[str, object]:
        with urllib.request.urlopen(f"http://{self.http}/api/groups") as answer:
            groups = json.load(answer)["groups"]
        return next(each for each in groups if each["name"] == GROUP)

    def finish(self) -> None:
        """Wait until the group has nothing to do; then each message must be done or dead."""

        def is_idle() -> bool:
            figures = self.figures()
            return (figures["lag"], figures["unacknowledged"]) == (0, 0)

        until(is_idle, "all messages are done", seconds_max=SECONDS_MAX, look_seconds=0.1)
        expected = {value for value in self.published if not value.endswith("!")}
        # A member writes its line after it has acknowledged.
        with contextlib.suppress(AssertionError):
            until(lambda: expected <= self.done(), "all lines", seconds_max=5, look_seconds=0.05)
        missing = set(self.published) - self.done() - self.dead()
        assert not missing, sorted(missing)[:20]

    # --- Faults

    def calm(self) -> None:
        """Let members of all five protocols share messages; one of the others stalls."""
        self.join(*OTHERS)
        self.publish()
        stalling = self.members[self.randomness.choice(OTHERS)]
        with stalling.stalled():
            self.publish(MESSAGES // 2)
            before = time.monotonic()
            until(lambda: time.monotonic() - before > 0.2, "a stall")
        self.finish()
        self.part(*OTHERS)

    def fault(self, kind: str) -> None:
        self.publish()
        least = len(self.published) - self.randomness.randrange(1, MESSAGES)
        until(
            lambda: len(self.done()) + least // 40 >= least - MESSAGES // 10,
            "messages are processed",
            seconds_max=SECONDS_MAX,
        )
        protocol = self.randomness.choice(ACKNOWLEDGES)
        match kind:
            case "broker killed":
                self.broker.restart()
            case "member killed":
                self.part(protocol, killed=True)
                self.join(protocol)
            case "member stalls":
                with self.members[protocol].stalled():
                    self.publish(MESSAGES // 2)
                    before = time.monotonic()
                    until(lambda: time.monotonic() - before > 1.5 * ACK_WAIT_SECONDS, "a stall")
            case _:
                self.part(protocol)
                self.join(protocol)

    def close(self) -> None:
        for member in self.members.values():
            member.kill()
        self.broker.kill()


@pytest.mark.parametrize(
    "log",
    [
        pytest.param("disk", marks=pytest.mark.skipif(not MANY, reason="make crash-groups")),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
)
def test_each_message_is_acknowledged_or_dead_in_the_end(
    log: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    storage = ""
    if log == "kafka":
        kafka: KafkaBroker = request.getfixturevalue("kafka")
        storage = f"""
            [storage]
            kind = "kafka"
            bootstrap = "{kafka.address}"
            topic = "history-{secrets.token_hex(4)}"
            node = 0
        """
    history = History(tmp_path, storage, SEED)
    try:
        history.broker.start()
        history.join(*ACKNOWLEDGES)
        history.calm()
        kinds = [
            KINDS[number] if number < len(KINDS) else history.randomness.choice(KINDS)
            for number in range(FAULTS)
        ]
        for number, kind in enumerate(kinds, 1):
            history.fault(kind)
            if number % 10 == 0:
                history.finish()
                history.calm()
        history.finish()
        history.part(*ACKNOWLEDGES)
        assert_nothing_comes_again(history)
        counts = f"{len(kinds)} faults, {len(history.published)} messages"
        sys.stdout.write(f"\n{log}: seed {SEED}, {counts}\n")
    except BaseException:
        sys.stdout.write(history.broker.output[-4000:])
        raise
    finally:
        history.close()


def assert_nothing_comes_again(history: History) -> None:
    """A new member gets a new message, and none before it."""
    with (
        connect_sync(history.url, protocol="lamamq", timeout=30) as client,
        client.consume(TOPIC, group=GROUP) as messages,
    ):
        client.publish(TOPIC, b"last")
        message = messages.get(SECONDS_MAX)
        assert message.value == b"last"
        message.ack()
