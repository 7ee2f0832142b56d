"""kill -9 of the broker while a group works: nothing is lost, and what was stored as done stays so.

`PENSTOCK_GROUP_KILLS=50` runs more kills. Members of several protocols take turns.
"""

import os
import random
import threading
from pathlib import Path

from penstock.client import ConnectFailed, PeerError, connect_sync
from penstock.client.errors import TimedOut
from penstock.storage.group_offsets import GroupOffsets
from tests.support.served import Served, until

KILLS = int(os.environ.get("PENSTOCK_GROUP_KILLS", "2"))
MESSAGES = 200
PROCESSED_SECONDS_MAX = 90.0
PROTOCOLS = ("lamamq", "fleximq")


def url(broker: Served) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


def work(broker: Served, protocol: str, done: "set[bytes]", ended: threading.Event) -> None:
    """Process messages as a member of the group until `ended`, through all kills."""
    while not ended.is_set():
        try:
            with (
                connect_sync(url(broker), protocol=protocol, timeout=5) as client,  # type: ignore[arg-type]
                client.consume("orders/#", group="billing", start="earliest") as messages,
            ):
                while not ended.is_set():
                    for message in messages.take(timeout=0.2):
                        if message.ack():
                            done.add(message.value)
        except (ConnectFailed, TimedOut, PeerError):
            continue


def stored_as_done(broker: Served) -> int:
    """Return the offset before which the stored state has everything as done."""
    state = GroupOffsets(broker.data).load("billing")
    return 0 if state is None else state.offsets[0]


def test_a_group_outlives_kills_of_the_broker(tmp_path: Path) -> None:
    randomness = random.Random(7)
    done: set[bytes] = set()
    ended = threading.Event()
    with Served(tmp_path) as broker:
        members = [
            threading.Thread(target=work, args=(broker, protocol, done, ended), daemon=True)
            for protocol in PROTOCOLS
        ]
        for member in members:
            member.start()
        try:
            for kill in range(KILLS):
                values = [b"%d-%d" % (kill, number) for number in range(MESSAGES)]
                with connect_sync(url(broker), protocol="lamamq") as publisher:
                    publisher.publish_many(f"orders/{kill}", values)
                least = randomness.randrange(MESSAGES)
                until(
                    lambda n=kill * MESSAGES + least: len(done) > n,  # type: ignore[misc]
                    "messages are processed",
                    seconds_max=PROCESSED_SECONDS_MAX,
                )
                broker.kill()
                before = stored_as_done(broker)
                broker.start()
                assert stored_as_done(broker) >= before
            until(
                lambda: len(done) == KILLS * MESSAGES,
                "all messages are processed",
                seconds_max=PROCESSED_SECONDS_MAX,
            )
            until(lambda: stored_as_done(broker) >= KILLS * MESSAGES, "the state is stored")
        finally:
            ended.set()
            for member in members:
                member.join(10)


def test_what_was_stored_as_done_does_not_come_again(tmp_path: Path) -> None:
    with Served(tmp_path) as broker:
        with (
            connect_sync(url(broker), protocol="lamamq") as client,
            client.consume("orders/#", group="billing") as messages,
        ):
            client.publish_many("orders/1", [b"a", b"b", b"c"])
            for _ in range(3):
                message = messages.get(10)
                assert message.value == b"b" or message.ack()
            until(lambda: _pending(broker) == [(1, 1)], "the state is stored")
            broker.kill()
        broker.start()
        with connect_sync(url(broker), protocol="fleximq") as client:
            client.publish("orders/1", b"d")
            with client.consume("orders/#", group="billing") as messages:
                assert [messages.get(10).value for _ in range(2)] == [b"b", b"d"]


def _pending(broker: Served) -> list[tuple[int, int]]:
    state = GroupOffsets(broker.data).load("billing")
    if state is None or state.progress is None or state.progress.next < 3:
        return []
    return [(run.first, run.size) for run in state.progress.pending]
