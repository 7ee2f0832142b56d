"""`[flight]`: where tables are served, and that it is not open to the world by oversight."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.server.banner import banner
from penstock.server.config import Config
from penstock.server.config_loading import load
from penstock.transport.addresses import parse_address

TLS = Path(__file__).parents[2] / "support" / "tls"


def loaded(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return load(file)


def test_tables_are_served_by_default_and_where_it_says() -> None:
    assert load().flight.address == "127.0.0.1:7090"
    assert load(flight="127.0.0.1:1").flight.address == "127.0.0.1:1"
    environment = {"PENSTOCK_FLIGHT__ADDRESS": "127.0.0.1:2"}
    assert load(environment=environment).flight.address == "127.0.0.1:2"
    place = load().flight.place
    assert place is not None
    assert (place.scheme, place.host, place.port) == ("tcp", "127.0.0.1", 7090)


def test_tables_are_not_served_where_nobody_asked_for_them(tmp_path: Path) -> None:
    assert load(listen=["tcp://127.0.0.1:7001"]).flight.place is None
    assert load(durability="memory").flight.place is None
    assert load(flight="").flight.place is None
    assert loaded(tmp_path, '[flight]\naddress = ""\n').flight.place is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('address = "7090"', 'flight.address: expected HOST:PORT, such as 127.0.0.1:7090, or ""'),
        (
            'address = "0.0.0.0:7090"',
            "can be reached from other machines and there are no credentials",
        ),
        ('address = "127.0.0.1:1"\nanonymous = false', "would refuse every client"),
        (
            f'address = "127.0.0.1:1"\ncertificate = "{TLS}/localhost.pem"',
            "flight: expected both certificate and key, or neither",
        ),
        (
            f'address = "127.0.0.1:1"\ncertificate = "{TLS}/localhost.pem"\nkey = "missing.key"',
            "missing.key",
        ),
        (
            f'address = "127.0.0.1:1"\nclient_ca = "{TLS}/client-ca.pem"',
            "flight: client_ca needs certificate and key",
        ),
        (
            'address = "127.0.0.1:1"\n[broker]\ndurability = "memory"',
            'there are no tables with broker.durability = "memory"',
        ),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f"[flight]\n{text}\n")
    assert problem in str(raised.value)


def test_other_machines_are_let_in_with_credentials(tmp_path: Path) -> None:
    config = loaded(
        tmp_path,
        f'[flight]\naddress = "0.0.0.0:0"\ncertificate = "{TLS}/localhost.pem"\n'
        f'key = "{TLS}/localhost.key"\n[[principal]]\nname = "spark"\ntoken = "secret"\n',
    )
    place = config.flight.place
    assert place is not None
    assert place.is_secure
    shown = banner(config, [parse_address("tcp://127.0.0.1:7000")], version="1", flight=place)
    assert "  flight  grpc+tls://0.0.0.0:0  tables, by Arrow Flight; credentials needed" in shown


def test_the_banner_is_silent_where_no_tables_are_served() -> None:
    assert "flight" not in banner(load(), [], version="1")
