"""Which listeners accept clients without credentials: one rule for every kind of listener."""

import asyncio
import http.client
import itertools
from pathlib import Path
from typing import Any

import pytest

from penstock.core.access import Principal
from penstock.errors import AuthenticationFailed, ConfigError
from penstock.flight.client import FlightClient
from penstock.server.config import (
    Config,
    DataConfig,
    FlightConfig,
    HttpConfig,
    ListenerConfig,
    PrincipalConfig,
)
from penstock.server.config_loading import load
from penstock.server.credentials import Authenticator
from penstock.server.run import Running
from penstock.server.server import Server
from penstock.server.storages import open_storage
from penstock.transport.addresses import Address

TLS = Path(__file__).parents[2] / "support" / "tls"
PRINCIPALS = (PrincipalConfig(name="a", token="open sesame"),)  # noqa: S106
LOCAL, OTHER = "127.0.0.1", "0.0.0.0"  # noqa: S104
SCHEMES = ("tcp", "tls", "udp", "ws", "wss", "ipc")
SETTINGS = (None, True, False)


def config_of(kind: str, host: str, folder: Path, *, anonymous: bool | None) -> Config:
    """A configuration with one listener of a kind."""
    common: dict[str, Any] = {"principal": PRINCIPALS, "data": DataConfig(folder=str(folder))}
    if kind == "http":
        return Config(http=HttpConfig(address=f"{host}:0", anonymous=anonymous), **common)
    if kind == "flight":
        return Config(flight=FlightConfig(address=f"{host}:0", anonymous=anonymous), **common)
    secure = {"certificate": f"{TLS}/localhost.pem", "key": f"{TLS}/localhost.key"}
    place = f"ipc://{folder}/socket" if kind == "ipc" else f"{kind}://{host}:0"
    url = f"{place}/ws" if kind in {"ws", "wss"} else place
    options = secure if kind in {"tls", "wss"} else {}
    return Config(listener=(ListenerConfig(url=url, anonymous=anonymous, **options),), **common)


def config_address(config: Config) -> Address:
    place = config.flight.place or config.http.place
    return place or config.listener[0].address


async def accepted(config: Config) -> Principal | None:
    """Start the only listener of a broker; return the principal of its anonymous clients."""
    server = Server(storage=open_storage(config))
    running = Running(config, server, Authenticator(config))
    await running.start()
    try:
        if server._flights:
            found: Principal | None = server._flights[0]._auth._anonymous
        else:
            found = server._listeners[0]._options.anonymous  # type: ignore[attr-defined]
        known = running.authenticator
        local = config_address(config).is_loopback
        assert found in {None, known.local_anonymous if local else known.anonymous}
        return found
    finally:
        await running.stop()


@pytest.mark.parametrize(
    ("kind", "host", "anonymous"),
    [
        *itertools.product((*SCHEMES, "http", "flight"), (LOCAL,), SETTINGS),
        *itertools.product((*SCHEMES[:-1], "http", "flight"), (OTHER,), SETTINGS),
    ],
)
def test_anonymous_clients_are_accepted_where_it_says_and_else_on_this_machine_only(
    kind: str, host: str, *, anonymous: bool | None, tmp_path: Path
) -> None:
    config = config_of(kind, host, tmp_path, anonymous=anonymous)
    expected = host == LOCAL if anonymous is None else anonymous
    assert (asyncio.run(accepted(config)) is not None) is expected


def loaded(folder: Path, text: str) -> Config:
    file = folder / "penstock.toml"
    file.write_text(text)
    return load(file)


PRINCIPAL = '[[principal]]\nname = "a"\ntoken = "t"\n'
LISTENER = '[[listener]]\nurl = "ws://127.0.0.1:7080/ws"\n'
HTTP = '[http]\naddress = "127.0.0.1:7080"\n'


def test_the_default_web_listener_goes_by_the_setting_of_http(tmp_path: Path) -> None:
    config = loaded(tmp_path, PRINCIPAL + "[http]\nanonymous = false\n")
    assert [each.address.accepts_anonymous for each in config.listener] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HTTP + "anonymous = false\n[[listener]]\nurl = 'tcp://127.0.0.1:1'\n", "refuse every"),
        (LISTENER + "[http]\nanonymous = false\n", "there is no http.address"),
        (PRINCIPAL + LISTENER + HTTP + "anonymous = false\n", "the same as anonymous of ws://"),
        (PRINCIPAL + LISTENER + "anonymous = false\n" + HTTP + "anonymous = true\n", "the same as"),
        (
            '[http]\naddress = "0.0.0.0:7080"\n[[listener]]\nurl = "tcp://127.0.0.1:1"\n',
            "other mach",
        ),
    ],
)
def test_a_setting_of_http_that_would_not_hold_is_a_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        LISTENER + HTTP,
        PRINCIPAL + LISTENER + "anonymous = false\n" + HTTP,
        PRINCIPAL + LISTENER + "anonymous = false\n" + HTTP + "anonymous = false\n",
        LISTENER + '[http]\naddress = "0.0.0.0:7081"\nanonymous = true\n',
    ],
)
def test_settings_of_http_that_hold(tmp_path: Path, text: str) -> None:
    loaded(tmp_path, text)


@pytest.mark.parametrize("anonymous", [True, False])
def test_no_call_without_credentials_is_answered_where_none_is_accepted(
    tmp_path: Path, *, anonymous: bool
) -> None:
    """Over real sockets, on this machine, by HTTP and by Flight."""
    data = DataConfig(folder=str(tmp_path))
    config = Config(
        principal=PRINCIPALS,
        data=data,
        http=HttpConfig(address="127.0.0.1:0", anonymous=anonymous),
        flight=FlightConfig(address="127.0.0.1:0", anonymous=anonymous),
    )

    async def call() -> list[bool]:
        running = Running(config, Server(storage=open_storage(config)), Authenticator(config))
        await running.start()
        try:
            assert running.http is not None
            assert running.flight is not None
            return [
                await asyncio.to_thread(_answers_http, running.http.port),
                await asyncio.to_thread(_answers_flight, running.flight.port),
            ]
        finally:
            await running.stop()

    assert asyncio.run(call()) == [anonymous, anonymous]


def _answers_http(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/api/topics")
    status = connection.getresponse().status
    connection.close()
    assert status in {200, 401}
    return status == 200


def _answers_flight(port: int) -> bool:
    with FlightClient(f"grpc://127.0.0.1:{port}") as client:
        try:
            client.topics()
        except AuthenticationFailed:
            return False
        return True
