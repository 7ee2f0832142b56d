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
