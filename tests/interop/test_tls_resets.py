"""Clients that reset their connection before TLS begins: none stays counted."""

import socket
import struct
from pathlib import Path

import pytest

from penstock.server.config import Config, DataConfig, ListenerConfig
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
