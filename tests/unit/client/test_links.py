"""Links that do not come about: what is wrong, by the class of the error."""

import asyncio
import pickle
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.client.address import parse_address
from penstock.client.errors import (
    ConnectFailed,
    InvalidAddress,
    TlsFailed,
    Unreachable,
    Untrusted,
)
from penstock.client.links import open_link

TLS = Path(__file__).parents[2] / "support" / "tls"


class Nobody:
    def received(self, data: bytes) -> None:
        raise AssertionError(data)

    def lost(self, reason: str) -> None:
        raise AssertionError(reason)


@asynccontextmanager
async def closing(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server that closes what has sent something."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


async def failure(url: str) -> ConnectFailed:
    async with asyncio.timeout(5):
        with pytest.raises(ConnectFailed) as caught:
            await open_link(parse_address(url), Nobody(), None)
    return caught.value


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "tls://127.0.0.1:1", "wss://127.0.0.1:1/ws"])
def test_where_nobody_listens_is_unreachable(url: str) -> None:
    error = asyncio.run(failure(url))
    assert type(error) is Unreachable
    assert str(error) == f"no connection to {url}: connection refused"


@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_a_plain_port_fails_in_tls(scheme: str) -> None:
    async def run() -> ConnectFailed:
        async with closing() as port:
            return await failure(f"{scheme}://127.0.0.1:{port}")

    error = asyncio.run(run())
    assert type(error) is TlsFailed
    assert ": TLS failed: " in str(error)


@pytest.mark.parametrize("scheme", ["tls", "wss"])
def test_a_certificate_that_the_system_does_not_know_is_not_trusted(scheme: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")

    async def run() -> ConnectFailed:
        async with closing(context) as port:
            return await failure(f"{scheme}://localhost:{port}")

    error = asyncio.run(run())
    assert type(error) is Untrusted
    assert ": TLS failed: the certificate: self" in str(error)


def test_what_answers_without_a_web_socket_is_not_unreachable() -> None:
    async def run() -> ConnectFailed:
        async with closing() as port:
            return await failure(f"ws://127.0.0.1:{port}/ws")

    assert type(asyncio.run(run())) is ConnectFailed


@pytest.mark.parametrize("kind", [ConnectFailed, Unreachable, TlsFailed, Untrusted])
def test_the_errors_can_be_pickled(kind: type[ConnectFailed]) -> None:
    error = kind("tcp://127.0.0.1:1", "why")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:7000", "expected scheme://host:port, such as tcp://127.0.0.1:7000"),
        ("stdio://x", "clients connect by tcp, tls, ipc, ws and wss, not by stdio"),
        ("tcp://127.0.0.1", "the port is missing"),
        ("tcp://:7000", "the host is missing"),
        ("ipc://", "the path is missing: ipc:///run/penstock.sock or ipc://name.sock"),
        ("tcp://127.0.0.1:1?ech=1", "options behind a ? are a listener's, not a client's"),
        ("tcp://127.0.0.1:0", "port 0 is no port to connect to"),
    ],
)
def test_an_address_is_refused_in_words_for_clients(url: str, reason: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        parse_address(url)
    assert caught.value.reason == reason
