"""Command line over environment over file over defaults; an error names its own source."""

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.server.config_environment import variables
from penstock.server.config_loading import load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text(
        '[broker]\ndurability = "fsync"\nsessions_max = 1\n[http]\naddress = "127.0.0.1:1"\n'
        '[[listener]]\nurl = "tcp://127.0.0.1:1"\n[[listener]]\nurl = "tcp://127.0.0.1:2"\n'
    )
    return path


def test_the_file_goes_over_the_defaults(file: Path) -> None:
    config = load(file)
    assert config.broker.durability == "fsync"
    assert config.broker.sessions_max == 1
    assert config.broker.subscriptions_max == 10_000


def test_the_environment_goes_over_the_file_key_by_key(file: Path) -> None:
    environment = {
        "PENSTOCK_BROKER__DURABILITY": "os",
        "PENSTOCK_LIMITS__HANDSHAKE_SECONDS_MAX": "2.5",
        "PENSTOCK_HERALD__CHANNELS": '{ 7 = "alarms" }',
    }
    config = load(file, environment=environment)
    assert config.broker.durability == "os"
    assert config.broker.sessions_max == 1
    assert config.limits.handshake_seconds_max == 2.5
    assert config.channels == {7: "alarms"}


def test_the_command_line_goes_over_the_environment(file: Path) -> None:
    environment = {
        "PENSTOCK_BROKER__DURABILITY": "os",
        "PENSTOCK_HTTP__ADDRESS": "127.0.0.1:2",
        "PENSTOCK_DATA__FOLDER": "/b",
        "PENSTOCK_LISTENER": '[{ url = "tcp://127.0.0.1:3" }]',
    }
    config = load(file, environment=environment)
    assert [each.url for each in config.listener] == ["tcp://127.0.0.1:3"]
    assert (config.http.address, config.data.folder) == ("127.0.0.1:2", "/b")
    config = load(
        file,
        environment=environment,
        listen=["tcp://127.0.0.1:4", "udp://127.0.0.1:4"],
        data="/c",
        http="127.0.0.1:3",
        durability="memory",
    )
    assert [each.url for each in config.listener] == ["tcp://127.0.0.1:4", "udp://127.0.0.1:4"]
    assert (config.http.address, config.data.folder) == ("127.0.0.1:3", "/c")
    assert config.broker.durability == "memory"


def test_the_environment_may_name_the_file_and_the_command_line_another(
    file: Path, tmp_path: Path
) -> None:
    environment = {"PENSTOCK_CONFIG": str(file)}
    assert load(environment=environment).broker.sessions_max == 1
    other = tmp_path / "other.toml"
    other.write_text("[broker]\nsessions_max = 2")
    assert load(other, environment=environment).broker.sessions_max == 2


def test_a_wrong_file_is_an_error_even_where_something_goes_over_it(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text("[broker]\nsessions_max = 0")
    with pytest.raises(ConfigError, match=r"penstock\.toml:2: broker\.sessions_max: "):
        load(path, environment={"PENSTOCK_BROKER__SESSIONS_MAX": "5"})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "PENSTOCK_BROKER__SESSIONS_MAX",
            "many",
            "broker.sessions_max: expected a whole number of at least 1, written as in TOML",
        ),
        (
            "PENSTOCK_BROKER__SESSIONS_MAX",
            "0",
            "broker.sessions_max: expected a whole number of at least 1, got 0",
        ),
        (
            "PENSTOCK_BROKER__SESSIONS_MAX",
            "1\nx = 2",
            "broker.sessions_max: expected a whole number of at least 1, written as in TOML",
        ),
        (
            "PENSTOCK_BROKER__DURABILITY",
            "disk",
            'broker.durability: expected "fsync", "memory" or "os", got "disk"',
        ),
        (
            "PENSTOCK_LISTENER",
            '[{ url = "tcp://0.0.0.0:1", echo = 3 }]',
            "listener[0].echo: expected true or false, got 3",
        ),
        (
            "PENSTOCK_BROKER__SESSION",
            "1",
            "unknown variable; expected PENSTOCK_ and a key, as BROKER__KEY",
        ),
        (
            "PENSTOCK_BROKER_SESSIONS_MAX",
            "1",
            'unknown variable; did you mean "PENSTOCK_BROKER__SESSIONS_MAX"?',
        ),
    ],
)
def test_an_error_of_the_environment_names_the_variable(
    variable: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environment={variable: value})
    assert str(caught.value) == f"{variable}: {message}"


def test_variables_of_an_orchestrator_are_left_alone() -> None:
    environment = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_PORT": "tcp://10.0.0.1:7000",
        "PENSTOCK_PORT_7000_TCP_ADDR": "10.0.0.1",
    }
    assert load(environment=environment) == load()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"durability": "disk"},
            '--durability: broker.durability: expected "fsync", "memory" or "os", got "disk"',
        ),
        (
            {"http": "7080"},
            "--http: http.address: expected HOST:PORT, such as 127.0.0.1:7080: the port is missing; port 0 lets the system choose",
        ),
        ({"data": ""}, '--data: data.folder: expected a string, not empty, got ""'),
    ],
)
def test_an_error_of_the_command_line_names_the_option(
    arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_the_default_websocket_is_beside_http() -> None:
    urls = [each.url for each in load(http="127.0.0.1:9000").listener]
    assert urls[-1] == "ws://127.0.0.1:9000/ws"


def test_every_setting_has_one_variable() -> None:
    names = variables()
    assert names["PENSTOCK_LIMITS__HANDSHAKE_SECONDS_MAX"][0] == ("limits", "handshake_seconds_max")
    assert names["PENSTOCK_PRINCIPAL"][0] == ("principal",)
    assert "PENSTOCK_BROKER" not in names


# --- Addresses that other machines reach ------------------------------------------------------

OPEN = "--listen: listener[0]: tcp://{}:7000 can be reached from other machines and there are no credentials; add a [[principal]], set anonymous = true, or listen on 127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.168.1.7", "broker.example"])  # noqa: S104
def test_another_address_without_principals_is_refused_with_the_remedy(host: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(listen=[f"tcp://{host}:7000"])
    assert str(caught.value) == OPEN.format(host)


@pytest.mark.parametrize(
    "url",
    [
        "tcp://127.0.0.1:7000",
        "tcp://127.8.0.1:7000",
        "tcp://[::1]:7000",
        "tcp://localhost:7000",
        "ipc://penstock.sock",
        "udp://127.0.0.1:7000",
        "tcp://0.0.0.0:7000?anonymous=true",
        "udp://0.0.0.0:7000?anonymous=true",
    ],
)
def test_loopback_or_an_explicit_anonymous_needs_no_principals(url: str) -> None:
    assert load(listen=[url]).listener[0].url == url


def test_one_principal_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[[principal]]\nname = "a"\ntoken = "t"')
    assert load(path, listen=["tcp://0.0.0.0:7000?cleartext_credentials=true"]).listener


@pytest.mark.parametrize(
    "url", ["udp://0.0.0.0:7000", "tcp://0.0.0.0:7000?protocol=rheos1", "udp://127.0.0.1:7000?anonymous=false"]
)  # fmt: skip
def test_a_protocol_without_credentials_needs_anonymous_clients(tmp_path: Path, url: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[[principal]]\nname = "a"\ntoken = "t"')
    with pytest.raises(
        ConfigError, match=r"would refuse every client: (herald|rheos1) clients have no"
    ):
        load(path, listen=[url])


def test_loopback_that_refuses_everyone_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"would refuse every client: add a \[\[principal\]\]"):
        load(listen=["tcp://127.0.0.1:7000?anonymous=false"])
