"""A member of a group as a process: `python -m tests.crash.group_member URL PROTOCOL`.

It writes a line for each message: `seen VALUE`, and `done VALUE` when it has acknowledged it. Values
that end in `!` are refused. It connects again by itself, and leaves at SIGTERM.
"""

import signal
import sys
import threading

from penstock.client import ClientClosed, ConnectFailed, PeerError, connect_sync
from penstock.client.errors import TimedOut
from penstock.client.sync import SyncClient

TOPIC = "channel/7"
CHANNEL = 7
GROUP = "billing"
ACKNOWLEDGES = ("fleximq", "lamamq")
"""Protocols whose members tell what they have done; of others, the system does."""
LOOK_SECONDS = 0.2


def tell(kind: str, value: bytes) -> None:
    sys.stdout.write(f"{kind} {value.decode()}\n")
    sys.stdout.flush()


def consume(client: SyncClient, ended: threading.Event) -> None:
    """Process messages until the connection is lost, or `ended`."""
    acknowledges = client.protocol.label in ACKNOWLEDGES
    with client.consume(TOPIC, group=GROUP) as messages:
        tell("joined", b"")
        while not ended.is_set():
            try:
                taken = messages.take(LOOK_SECONDS)
            except TimedOut:
                continue
            for message in taken:
                tell("seen", message.value)
                if acknowledges and message.value.endswith(b"!"):
                    message.nack("poison")
                elif message.ack():
                    tell("done", message.value)


def listen(client: SyncClient, ended: threading.Event) -> None:
    """Do the same with a channel of herald, which the broker binds to the group."""
    stream = client.subscribe(CHANNEL, timeout=LOOK_SECONDS)
    tell("joined", b"")
    while not ended.is_set():
        try:
            message = next(stream)
        except TimedOut:
            continue
        tell("seen", message.value)
        tell("done", message.value)


def main(url: str, protocol: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    while not ended.is_set():
        try:
            with connect_sync(url, protocol=protocol, timeout=5) as client:  # type: ignore[arg-type]
                (listen if protocol == "herald" else consume)(client, ended)
        except (ConnectFailed, TimedOut, PeerError, ClientClosed, StopIteration):
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
