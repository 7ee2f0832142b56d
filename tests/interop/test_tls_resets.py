"""Clients that do not finish TLS: their memory is counted, and none stays counted."""

import contextlib
import socket
import struct
from pathlib import Path

import pytest

from penstock.limits import MEMORY_TLS_BYTES, MIB
from penstock.server.config import Config, DataConfig, LimitsConfig, ListenerConfig
from tests.support.configured import ConfiguredBroker

TLS = Path(__file__).parents[1] / "support" / "tls"
RESET = struct.pack("ii", 1, 0)


@pytest.mark.parametrize("place", ["tls://127.0.0.1:0", "wss://127.0.0.1:0/ws"])
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "hello"])
def test_a_connection_that_is_reset_before_its_handshake_is_released(
    tmp_path: Path, place: str, first: bytes
) -> None:
    """Once broken: some waited for TLS forever, until there was no room for other clients."""
    listener = ListenerConfig(
        url=place, certificate=f"{TLS}/localhost.pem", key=f"{TLS}/localhost.key"
    )
    config = Config(data=DataConfig(folder=str(tmp_path)), listener=(listener,))
    with ConfiguredBroker(config) as broker:
        limit = broker.running.server._connection_limit
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", broker.port(0)), timeout=5) as link:
                link.sendall(first)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        broker.until(lambda: limit.connections == 0)


@pytest.mark.parametrize("place", ["tls://127.0.0.1:0", "wss://127.0.0.1:0/ws"])
def test_a_listener_that_closes_ends_handshakes_under_way(tmp_path: Path, place: str) -> None:
    listener = ListenerConfig(
        url=place, certificate=f"{TLS}/localhost.pem", key=f"{TLS}/localhost.key"
    )
    config = Config(data=DataConfig(folder=str(tmp_path)), listener=(listener,))
    with ConfiguredBroker(config) as broker:
        limit = broker.running.server._connection_limit
        with socket.create_connection(("127.0.0.1", broker.port(0)), timeout=3) as link:
            link.sendall(b"\x16\x03\x01\x02\x00\x01")
            broker.until(lambda: limit.connections == 1)
            (served,) = broker.running.server._listeners
            broker.run(served.close(seconds_max=0.5))
            with contextlib.suppress(ConnectionResetError):
                assert link.recv(1) == b""
            broker.until(lambda: limit.connections == 0)


@pytest.mark.parametrize("place", ["tls://127.0.0.1:0", "wss://127.0.0.1:0/ws"])
def test_a_connection_without_tls_is_drawn_without_its_memory(tmp_path: Path, place: str) -> None:
    scheme, _, rest = place.partition("://")
    plain = f"{'tcp' if scheme == 'tls' else 'ws'}://{rest}"
    listeners = (
        ListenerConfig(url=plain),
        ListenerConfig(url=place, certificate=f"{TLS}/localhost.pem", key=f"{TLS}/localhost.key"),
    )
    config = Config(data=DataConfig(folder=str(tmp_path)), listener=listeners)
    with ConfiguredBroker(config) as broker, contextlib.ExitStack() as stack:
        memory = broker.running.server.broker.memory
        drawn = [0]
        for index in range(2):
            link = socket.create_connection(("127.0.0.1", broker.port(index)), timeout=5)
            stack.enter_context(link)
            broker.until(lambda: memory.left().get("unauthenticated", 0) > sum(drawn))
            drawn.append(memory.left()["unauthenticated"] - sum(drawn))
        _, without, with_tls = drawn
        assert with_tls - without == MEMORY_TLS_BYTES
        own = [each.own_bytes for each in broker.running.server._listeners]
        assert own == [0, MEMORY_TLS_BYTES]


@pytest.mark.parametrize("place", ["tls://127.0.0.1:0", "wss://127.0.0.1:0/ws"])
def test_a_handshake_that_stalls_is_drawn_from_the_memory_budget(
    tmp_path: Path, place: str
) -> None:
    """Once broken: each took 70 KiB that no account held."""
    listener = ListenerConfig(
        url=place, certificate=f"{TLS}/localhost.pem", key=f"{TLS}/localhost.key"
    )
    limits = LimitsConfig(memory_bytes_max=128 * MIB, memory_unauthenticated_share=0.05)
    config = Config(data=DataConfig(folder=str(tmp_path)), listener=(listener,), limits=limits)
    with ConfiguredBroker(config) as broker, contextlib.ExitStack() as stack:
        memory = broker.running.server.broker.memory
        share = int(memory.bytes_max * limits.memory_unauthenticated_share)
        fits = share // MEMORY_TLS_BYTES
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port(0)), timeout=5))
            for _ in range(fits + 20)
        ]
        for link in links[:20]:
            link.sendall(b"\x16\x03\x01\x02\x00\x01")
        broker.until(lambda: memory.left().get("unauthenticated", 0) > 20 * MEMORY_TLS_BYTES)
        broker.until(lambda: memory.refusals["unauthenticated"] > 0)
        assert memory.left()["unauthenticated"] <= share
        stack.close()
        broker.until(lambda: not memory.left())
