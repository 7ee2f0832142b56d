"""`penstock drain` ends a broker: no new clients, a goodbye to the others, groups handed over."""

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.live import Peer
from tests.support.running import Running, run

CONFIG = """
data.folder = "data"
http.address = "127.0.0.1:0"
groups.ack_wait_seconds = 600.0
groups.deliveries_max = 2
[[listener]]
url = "tcp://127.0.0.1:0"
"""
TLS = Path(__file__).parents[1] / "support" / "tls"
WITH_TLS = f"""
[[listener]]
url = "wss://127.0.0.1:0/ws"
certificate = "{TLS / "localhost.pem"}"
key = "{TLS / "localhost.key"}"
"""
GROUP = b"orders/#@group=billing"


class Broker(NamedTuple):
    process: Running
    address: tuple[str, int]
    url: str

    def wait(self) -> int:
        return self.process.wait()[0]


@contextlib.contextmanager
def broker(folder: Path, *, tls: bool = False) -> Iterator[Broker]:
    """Run a broker; the next one in this folder continues its log."""
    config = folder / "penstock.toml"
    config.write_text(CONFIG + WITH_TLS if tls else CONFIG)
    with Running("serve", "--config", config, errors=folder / "events") as process:
        text = ""
        while not text.endswith("Ready.\n"):
            text += process.line() + "\n"
        ports = dict(re.findall(r"(\w+)://127\.0\.0\.1:(\d+)", text))
        url = f"https://localhost:{ports['wss']}" if tls else f"http://127.0.0.1:{ports['http']}"
        yield Broker(process, ("127.0.0.1", int(ports["tcp"])), url)


def test_members_are_handed_over_and_the_others_get_what_was_written(tmp_path: Path) -> None:
    with broker(tmp_path) as served, contextlib.ExitStack() as stack:
        plain = stack.enter_context(lama.subscriber(served, b"orders/#"))
        goodbye = stack.enter_context(Peer(served.address))
        goodbye.send(herald.handshake_sub(b"\x07"))
        assert len(goodbye.receive(16)) == 16
        members = [stack.enter_context(lama.subscriber(served, GROUP)) for _ in range(4)]
        sender = stack.enter_context(lama.client(served, b"sender"))
        sender.request(lama.push(0, b"orders/1", b"not acknowledged"))
        done = run("drain", "--url", served.url)
        assert (done.code, done.err) == (0, "")
        assert done.out == b"draining 7 clients, for at most 5 s\nthe broker has ended\n"
        assert served.wait() == 0
        assert plain.forwarded().payload == b"not acknowledged"
        plain.expect_close()
        goodbye.expect(herald.DISCONNECT)
        goodbye.expect_close()
        got = b"".join(member.receive(1000) for member in members)
        assert got.count(b"not acknowledged") == 1  # and not by each that leaves
    events = (tmp_path / "events").read_text()
    assert "event=draining principal=anonymous clients=7 seconds_max=5" in events
    assert '"act":"drain"' in (tmp_path / "data" / "audit.jsonl").read_text()
    with broker(tmp_path) as served, lama.subscriber(served, GROUP) as member:
        assert member.forwarded().payload == b"not acknowledged"  # long before ack_wait_seconds


@pytest.mark.parametrize("tls", [False, True])
def test_while_it_waits_for_a_slow_client_new_ones_are_refused(
    tmp_path: Path,
    tls: bool,  # noqa: FBT001
) -> None:
    with broker(tmp_path, tls=tls) as served, contextlib.ExitStack() as stack:
        slow = stack.enter_context(Peer(served.address))
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.send(herald.handshake_sub(b"\x07"))
        assert len(slow.receive(16)) == 16
        sender = stack.enter_context(Peer(served.address))
        sender.send(herald.handshake_pub(7))
        for _ in range(10):
            sender.send(herald.publish(7, bytes(1_000_000)))
        sender.send(herald.frame(0x20))
        assert sender.receive(16)
        where = ["--url", served.url, *(["--ca", TLS / "localhost.pem"] if tls else [])]
        drain = stack.enter_context(Running("drain", "--wait", "60", *where))
        assert drain.line() == "draining 2 clients, for at most 60 s"
        until_closed(sender)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(served.address, 5)
        assert (served.process.popen.poll(), drain.popen.poll()) == (None, None)
        assert until_closed(slow) > 10_000_000  # all that was written to it
        assert drain.line() == "the broker has ended"
        assert (drain.wait(), served.wait()) == ((0, ""), 0)


def until_closed(peer: Peer) -> int:
    """Read until the broker closes the connection; return the number of bytes."""
    peer.socket.settimeout(20)
    received = 0
    while more := peer.socket.recv(1 << 20):
        received += len(more)
    return received
