"""A configuration is right, or one line names file, key and what was expected."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.errors import ConfigError, ErrorCode, OperatorError
from penstock.limits import MIB
from penstock.memory import Purpose
from penstock.server.config import Config
from penstock.server.config_loading import load

HASH = "$argon2id$v=19$m=65536,t=3,p=4$" + "c2FsdHNhbHRzYWx0c2E$" + "A" * 43
DIGEST = "ab" * 32


def write(folder: Path, text: str) -> Path:
    file = folder / "penstock.toml"
    file.write_text(text)
    return file


def error_of(folder: Path, text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text of the error behind the file's name and line; the line has the key or its table."""
    file = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(file, environment=environment)
    message, key = str(caught.value), caught.value.key
    assert "\n" not in message
    assert caught.value.source.startswith(str(file))
    line = caught.value.source.removeprefix(str(file)).removeprefix(":")
    assert bool(line) is bool(key)
    if key:
        shown = text.splitlines()[int(line) - 1]
        names = re.sub(r"\[\d+\]", "", key).split(".")
        assert names[-1] in shown or ("missing" in message and names[-2] in shown)
    return message.removeprefix(f"{caught.value.source}: ")


def principal(text: str) -> str:
    return f'[[principal]]\nname = "a"\n{text}\n'


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, ""))
    assert config == load()
    assert [listener.url for listener in config.listener] == [
        "tcp://127.0.0.1:7000",
        "udp://127.0.0.1:7000",
        "ws://127.0.0.1:7080/ws",
    ]
    assert config.http.address == "127.0.0.1:7080"
    assert config.broker.durability == "fsync"
    assert config.channels is None


def test_every_table_is_read(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            f"""
            [broker]
            sessions_max = 5
            subscriptions_max = 6
            out_buffer_bytes_max = 1_000_000
            hold_seconds_max = 0
            slow_consumer = "disconnect"
            durability = "os"
            [limits]
            handshake_seconds_max = 2
            messages_per_second_max = 100
            herald_payload_bytes_max = 1000
            [http]
            address = "[::1]:80"
            [data]
            folder = "/var/lib/penstock"
            [herald]
            channels = {{ 7 = "alarms", "255" = "plant/heat" }}
            [[listener]]
            url = "tcp://127.0.0.1:7001"
            protocol = "lamamq"
            order = "little"
            echo = false
            [[listener]]
            url = "ipc://a.sock?protocol=fleximq"
            mode = "0660"
            anonymous = false
            [anonymous]
            default = "deny"
            [[anonymous.rule]]
            allow = ["subscribe"]
            topics = ["public/#"]
            [[principal]]
            name = "plant"
            token = "t"
            basic = {{ username = "u", password_hash = "{HASH}" }}
            api_key_sha256 = "{DIGEST}"
            lamamq = {{ identity = "i", key_sha256 = "{DIGEST}" }}
            [[principal.rule]]
            deny = ["publish", "subscribe"]
            topics = ["secret/#", "other"]
            [[program]]
            command = ["worker", "--fast"]
            env = {{ MODE = "x" }}
            """,
        )
    )
    settings = config.broker_settings
    assert (settings.sessions_max, settings.subscriptions_max) == (5, 6)
    assert settings.out_buffer_bytes_max == 1_000_000
    assert settings.disconnect_slow_consumers
    assert config.limits.handshake_seconds_max == 2.0
    assert config.limits.messages_per_second_max == 100
    assert config.channels == {7: "alarms", 255: "plant/heat"}
    lamamq, fleximq = (listener.address for listener in config.listener)
    assert str(lamamq) == "tcp://127.0.0.1:7001?protocol=lamamq&order=little&echo=false"
    assert (fleximq.path, fleximq.mode, fleximq.anonymous) == ("a.sock", 0o660, False)
    assert config.principal[0].rule[0].topics == ("secret/#", "other")
    assert config.program[0].command == ("worker", "--fast")
    assert config.program[0].env == {"MODE": "x"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # Unknown keys
        (
            "[broker]\nsession_max = 1",
            'broker.session_max: unknown key; did you mean "sessions_max"?',
        ),
        ("[brokers]", 'brokers: unknown key; did you mean "broker"?'),
        ("[data]\nxyz = 1", "data.xyz: unknown key; expected folder"),
        (
            '[[listener]]\nurl = "tcp://127.0.0.1:1"\n[[listener]]\nurl = "tcp://127.0.0.1:2"\nurls = 1',
            'listener[1].urls: unknown key; did you mean "url"?',
        ),
        (
            principal('token = "t"\n[[principal.rule]]\ntopics = ["a"]\nallows = ["publish"]'),
            'principal[0].rule[0].allows: unknown key; did you mean "allow"?',
        ),
        # Wrong types
        (
            '[broker]\nsessions_max = "many"',
            'broker.sessions_max: expected a whole number of at least 1, got "many"',
        ),
        (
            "[broker]\nsessions_max = true",
            "broker.sessions_max: expected a whole number of at least 1, got true",
        ),
        (
            "[broker]\nsessions_max = 1.5",
            "broker.sessions_max: expected a whole number of at least 1, got 1.5",
        ),
        ("broker = 1", "broker: expected a table, got 1"),
        ("[listener]", "listener: expected a list of tables, got a table"),
        ("listener = [1]", "listener[0]: expected a table, got 1"),
        ("[http]\naddress = 7080", "http.address: expected a string, not empty, got 7080"),
        (
            '[[listener]]\nurl = "tcp://127.0.0.1:1"\necho = "yes"',
            'listener[0].echo: expected true or false, got "yes"',
        ),
        (
            "[data]\nfolder = 2026-11-15",
            "data.folder: expected a string, not empty, got a date",
        ),
        (
            '[[program]]\ncommand = "worker --fast"',
            "program[0].command: expected a list of strings, not empty, got a string that does not fit",
        ),
        (
            "[herald]\nchannels = { 7 = 8 }",
            "herald.channels.7: expected a string, got 8",
        ),
        # Bad values
        (
            "[broker]\nsessions_max = 0",
            "broker.sessions_max: expected a whole number of at least 1, got 0",
        ),
        (
            '[broker]\nslow_consumer = "wait"',
            'broker.slow_consumer: expected "disconnect" or "drop", got "wait"',
        ),
        (
            '[broker]\ndurability = "disk"',
            'broker.durability: expected "fsync", "memory" or "os", got "disk"',
        ),
        (
            "[limits]\nhandshake_seconds_max = 0",
            "limits.handshake_seconds_max: expected a number above 0 and up to 86400, got 0",
        ),
        (
            "[limits]\nherald_payload_bytes_max = 2_000_000",
            "limits.herald_payload_bytes_max: expected a whole number from 64 to 1048576, got 2000000",
        ),
        (
            "[limits]\nfleximq_message_bytes_max = 2_000_000_000",
            "limits.fleximq_message_bytes_max: expected a whole number from 64 to 1073741824, got 2000000000",
        ),
        ('[data]\nfolder = ""', 'data.folder: expected a string, not empty, got ""'),
        (
            '[http]\naddress = "7080"',
            "http.address: expected HOST:PORT, such as 127.0.0.1:7080: the port is missing; port 0 lets the system choose",
        ),
        (
            '[herald.channels]\n256 = "alarms"',
            "herald.channels.256: expected a channel from 0 to 255 as key",
        ),
        (
            '[herald.channels]\nseven = "alarms"',
            "herald.channels.seven: expected a channel from 0 to 255 as key",
        ),
        (
            '[herald.channels]\n07 = "alarms"',
            "herald.channels.07: expected a channel from 0 to 255 as key",
        ),
        (
            '[herald.channels]\n7 = "a@#7"',
            (
                "herald.channels.7: no topic can be named 'a@#7': subscriptions would take @#7 for "
                "a start position"
            ),
        ),
        (
            '[herald.channels]\n7 = "a/#"',
            "herald.channels.7: no topic can be named 'a/#': a level is a wildcard",
        ),
        (
            '[herald.channels]\n7 = "a"\n8 = "a"',
            'herald.channels.8: "a" is already the topic of channel 7',
        ),
        # Listeners
        ("[[listener]]", "listener[0].url: missing; expected a string, not empty"),
        (
            '[[listener]]\nurl = "http://127.0.0.1:1"',
            "listener[0].url: unknown scheme 'http', expected tcp, tls, udp, ipc, ws, wss (in \"http://127.0.0.1:1\")",
        ),
        (
            '[[listener]]\nurl = "tcp://127.0.0.1:1?echo=true"\necho = true',
            'listener[0].url: option echo is given twice (in "tcp://127.0.0.1:1?echo=true")',
        ),
        (
            '[[listener]]\nurl = "tcp://127.0.0.1:1"\n[[listener]]\nurl = "tcp://127.0.0.1:1?echo=false"',
            "listener[1].url: listener[0] is at the same address",
        ),
        (
            '[[listener]]\nurl = "tls://127.0.0.1:1"',
            "listener[0]: tls:// needs certificate and key, each the path of a PEM file",
        ),
        # Roles
        (
            '[[role]]\nname = "r"\n[[role.rule]]\ntopics = ["a"]',
            "role[0].rule[0]: expected either allow or deny",
        ),
        (
            2 * '[[role]]\nname = "r"\n[[role.rule]]\ntopics = ["a"]\nallow = ["hook"]\n',
            "role[1].name: role[0] has the same; expected another",
        ),
        (
            '[anonymous]\nroles = ["r"]',
            'anonymous.roles: there is no [[role]] named "r"',
        ),
        (
            '[[principal]]\nname = "p"\ntoken = "t"\nroles = ["r"]',
            'principal[0].roles: there is no [[role]] named "r"',
        ),
        (
            '[[role]]\nname = "r"\nrule = []',
            "role[0].rule: expected a list of tables, not empty, got an empty list",
        ),
        # Rules
        (
            '[[anonymous.rule]]\ntopics = ["a"]',
            "anonymous.rule[0]: expected either allow or deny",
        ),
        (
            '[[anonymous.rule]]\ntopics = ["a"]\nallow = ["publish"]\ndeny = ["publish"]',
            "anonymous.rule[0]: expected either allow or deny",
        ),
        (
            '[[anonymous.rule]]\ntopics = ["a/#/b"]\nallow = ["publish"]',
            'anonymous.rule[0].topics: "a/#/b" matches no topic; # and > stand only at the end',
        ),
        (
            '[[anonymous.rule]]\ntopics = ["a"]\nallow = ["write"]',
            (
                'anonymous.rule[0].allow[0]: expected "administer", "group", "hook", "publish", '
                '"request", "serve" or "subscribe", got "write"'
            ),
        ),
        (
            "[[anonymous.rule]]\ntopics = []\nallow = ['publish']",
            "anonymous.rule[0].topics: expected a list of strings, not empty, got an empty list",
        ),
        # Principals
        (
            principal(""),
            "principal[0]: expected at least one of token, token_sha256, basic, api_key_sha256, lamamq, jwt, certificate or networks",
        ),
        ('[[principal]]\ntoken = "t"', "principal[0].name: missing; expected a string, not empty"),
        (
            principal('token = "t"') + principal('token = "u"'),
            "principal[1].name: principal[0] has the same; expected another",
        ),
        (
            principal('token = "t"') + '[[principal]]\nname = "b"\ntoken = "t"',
            "principal[1].token: principal[0] has the same; expected another",
        ),
        (
            principal('api_key_sha256 = "1234"'),
            "principal[0].api_key_sha256: expected 64 hexadecimal digits, got a string that does not fit",
        ),
        (
            principal('basic = { username = "u", password_hash = "secret" }'),
            "principal[0].basic.password_hash: expected an argon2id hash; `penstock hash-password` prints one",
        ),
        (
            principal(
                f'basic = {{ username = "u", password_hash = "{HASH.replace("2id", "2i")}" }}'
            ),
            "principal[0].basic.password_hash: expected an argon2id hash; `penstock hash-password` prints one",
        ),
        (
            principal('basic = { username = "u" }'),
            "principal[0].basic.password_hash: missing; expected a string, not empty",
        ),
        (
            principal(f'lamamq = {{ identity = "{"ä" * 600}", key_sha256 = "{DIGEST}" }}'),
            "principal[0].lamamq.identity: expected at most 1024 bytes, got 1200",
        ),
    ],
)
def test_an_error_names_the_key_and_what_was_expected(
    tmp_path: Path, text: str, message: str
) -> None:
    assert error_of(tmp_path, text) == message


def test_an_error_says_nothing_of_a_secret(tmp_path: Path) -> None:
    for text in (
        principal('api_key_sha256 = "hunter2"'),
        principal('basic = { username = "u", password_hash = "hunter2" }'),
        principal('token = ["hunter2"]'),
        "[[program]]\ncommand = ['x']\nenv = { secret = ['hunter2'] }",
        principal('token = "hunter2"') + '[[principal]]\nname = "b"\ntoken = "hunter2"',
    ):
        assert "hunter2" not in error_of(tmp_path, text)


def test_what_is_not_toml_is_an_error_with_its_place(tmp_path: Path) -> None:
    assert error_of(tmp_path, "[broker\n").startswith("expected TOML: ")
    assert "line 2" in error_of(tmp_path, "[broker]\nsessions_max = = 1\n")


def test_what_is_not_text_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: expected TOML in UTF-8"


def test_a_missing_file_is_an_error_that_says_who_named_it(tmp_path: Path) -> None:
    file = tmp_path / "absent.toml"
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == (
        f"{file}: cannot be read: no such file or directory; give --config the path of a penstock.toml"
    )
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert isinstance(caught.value, OperatorError)
    with pytest.raises(ConfigError, match="give PENSTOCK_CONFIG the path"):
        load(environment={"PENSTOCK_CONFIG": str(file)})
    with pytest.raises(ConfigError, match="cannot be read: is a directory"):
        load(tmp_path)


def test_relative_paths_in_a_file_start_at_its_folder(tmp_path: Path) -> None:
    file = write(tmp_path, '[data]\nfolder = "messages"')
    assert load(file).data.folder == str(tmp_path / "messages")
    assert load(file, data="messages").data.folder == "messages"
    assert load().data.folder == Config().data.folder == "penstock-data"


def test_an_unusable_certificate_is_an_error_of_its_listener(tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nothing")
    text = '[[listener]]\nurl = "wss://127.0.0.1:1/ws"\ncertificate = "c.pem"\nkey = "k.pem"'
    message = error_of(tmp_path, text)
    assert (
        message
        == f"listener[0]: TLS file {tmp_path / 'k.pem'}: cannot be read: no such file or directory"
    )


@pytest.mark.parametrize(("durability", "kept"), [("memory", False), ("os", True), ("fsync", True)])
def test_a_broker_with_its_messages_in_memory_has_no_log(
    tmp_path: Path,
    durability: str,
    kept: bool,  # noqa: FBT001
) -> None:
    config = load(write(tmp_path, f'[broker]\ndurability = "{durability}"'))
    assert (config.log_options is not None) == kept


@pytest.mark.parametrize(
    ("namespaces", "least", "consumers"), [("", 210, 3), ('"a/#" = "a"', 233, 4)]
)
def test_what_consumers_of_kafka_fetch_ahead_is_part_of_the_budget(
    tmp_path: Path, namespaces: str, least: int, consumers: int
) -> None:
    """Those of the follower, of replay and of namespaces are always there."""

    def text(budget: int) -> str:
        return (
            f"[limits]\nmemory_bytes_max = {budget * MIB}\n"
            f'[storage]\nkind = "kafka"\nbootstrap = "h:9"\nnode = 0\n'
            f"[storage.kafka.namespaces]\n{namespaces}\n"
        )

    config = load(write(tmp_path, text(least)))
    cache = least * MIB // 16
    assert config.memory_fixed[Purpose.CACHES] == cache + (1 + consumers) * 16 * MIB
    assert config.kafka_options is not None
    assert config.kafka_options.cache_bytes_max == cache
    assert "limits.memory_bytes_max" in error_of(tmp_path, text(least - 1))
    large = load(write(tmp_path, text(4096)))
    assert large.kafka_options is not None
    assert large.kafka_options.cache_bytes_max == 64 * MIB
