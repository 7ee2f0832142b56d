"""Principals whose credentials are weak, ambiguous or exposed are problems of the configuration."""

import sys
from pathlib import Path
from typing import Any

import argon2
import pytest

from penstock.errors import ConfigError
from penstock.server.config import Config
from penstock.server.config_loading import load

TLS = Path(__file__).parents[2] / "support" / "tls"
TOKEN = '[[principal]]\nname = "a"\ntoken = "t"\n'  # noqa: S105
SERVER = f'certificate = "{TLS}/localhost.pem"\nkey = "{TLS}/localhost.key"\n'


def loaded(folder: Path, text: str) -> Config:
    file = folder / "penstock.toml"
    file.write_text(text)
    return load(file)


def hashed(**parameters: Any) -> str:
    strong = {"time_cost": 2, "memory_cost": 19 * 1024, "parallelism": 1}
    return argon2.PasswordHasher(**{**strong, **parameters}).hash("p")


@pytest.mark.parametrize(
    "parameters",
    [
        {"memory_cost": 19 * 1024 - 1},
        {"time_cost": 1},
        {"hash_len": 15},
        {"memory_cost": 8, "time_cost": 1},
    ],
)
def test_a_weak_password_hash_is_named_with_its_line(
    tmp_path: Path, parameters: dict[str, Any]
) -> None:
    text = '[[principal]]\nname = "a"\nbasic = {{ username = "u", password_hash = "{}" }}\n'
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text.format(hashed(**parameters)))
    assert str(caught.value).startswith(
        f"{tmp_path}/penstock.toml:3: principal[0].basic.password_hash: too weak: "
        "expected at least m=19456"
    )
    loaded(tmp_path, text.format(hashed()))


@pytest.mark.parametrize("kind", [argon2.Type.I, argon2.Type.D])
def test_other_kinds_of_argon2_are_refused(tmp_path: Path, kind: argon2.Type) -> None:
    text = '[[principal]]\nname = "a"\nbasic = {{ username = "u", password_hash = "{}" }}\n'
    with pytest.raises(ConfigError, match="expected an argon2id hash"):
        loaded(tmp_path, text.format(hashed(type=kind)))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ('"anonymous"', "is the name of clients without credentials"),
        ('"Anonymous"', "is the name of clients without credentials"),
        ('"anyone"', "is the name of clients without credentials"),
        ('"a\\nb"', "printable"),
        ('"a\\u202eb"', "printable"),
        ('" a"', "no space at the ends"),
        (f'"{"a" * 201}"', "at most 200"),
    ],
)
def test_names_that_mislead(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(tmp_path, f'[[principal]]\nname = {name}\ntoken = "t"\n')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("certificate = {}", "expected either subject or san"),
        ('certificate = { subject = "CN=a", san = "DNS:a" }', "expected either subject or san"),
        ('certificate = { san = "press-4" }', "expected a type and a name"),
        ('networks = ["10.1.0.1/16"]', '"10.1.0.1/16" is no network'),
        ('token = "u"\nonly_from = ["plant"]', '"plant" is no network'),
        ('jwt = { issuer = "https://id.example" }', r"there is no \[\[jwt\]\] with this issuer"),
        ('networks = ["10.0.0.0/8"]', r"principal\[0\] has 10.0.0.0/8 too"),
        ('certificate = { san = "DNS:first" }', r"principal\[0\] has the same"),
        (
            'token_sha256 = "e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8"',
            r"token_sha256: principal\[0\] has the same",
        ),
    ],
)
def test_credentials_that_are_ambiguous(tmp_path: Path, text: str, problem: str) -> None:
    first = TOKEN + 'networks = ["10.0.0.0/8"]\ncertificate = { san = "DNS:first" }\n'
    with pytest.raises(ConfigError, match=problem):
        loaded(tmp_path, first + f'[[principal]]\nname = "b"\n{text}\n')


@pytest.mark.parametrize(
    "text",
    [
        '[[listener]]\nurl = "tcp://0.0.0.0:1"\n',
        '[[listener]]\nurl = "tcp://0.0.0.0:1"\nanonymous = true\n',
        '[[listener]]\nurl = "tcp://[::]:1"\nprotocol = "lamamq"\n',
        '[[listener]]\nurl = "ws://broker.example:1/ws"\n',
        '[http]\naddress = "0.0.0.0:1"\n[[listener]]\nurl = "tcp://127.0.0.1:1"\n',
        '[flight]\naddress = "0.0.0.0:1"\n',
    ],
)
def test_cleartext_credentials_of_other_machines_need_a_word(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="could be read on their way"):
        loaded(tmp_path, TOKEN + text)
    if text.startswith("[http]"):
        answered = text.replace("[[", "cleartext_credentials = {}\n[[")
    else:
        answered = text + "cleartext_credentials = {}\n"
    for value in ("true", "false"):
        loaded(tmp_path, TOKEN + answered.format(value))


@pytest.mark.parametrize(
    "text",
    [
        '[[listener]]\nurl = "tcp://127.0.0.1:1"\n',
        '[[listener]]\nurl = "ipc://a.sock"\n',
        '[[listener]]\nurl = "udp://0.0.0.0:1"\nanonymous = true\n',
        '[[listener]]\nurl = "tcp://0.0.0.0:1"\nprotocol = "rheos1"\nanonymous = true\n',
        f'[[listener]]\nurl = "tls://0.0.0.0:1"\n{SERVER}',
        f'[flight]\naddress = "0.0.0.0:1"\n{SERVER}',
    ],
)
def test_others_do_not(tmp_path: Path, text: str) -> None:
    loaded(tmp_path, TOKEN + text)


def test_principals_without_secrets_need_no_word(tmp_path: Path) -> None:
    text = '[[principal]]\nname = "a"\nnetworks = ["10.0.0.0/8"]\n'
    loaded(tmp_path, text + '[[listener]]\nurl = "tcp://0.0.0.0:1"\n')


def test_http_beside_a_listener_says_the_same(tmp_path: Path) -> None:
    listener = '[[listener]]\nurl = "ws://0.0.0.0:1/ws"\ncleartext_credentials = true\n'
    http = '[http]\naddress = "0.0.0.0:1"\n'
    loaded(tmp_path, TOKEN + listener + http)
    with pytest.raises(ConfigError, match="the same as cleartext_credentials of ws://"):
        loaded(tmp_path, TOKEN + listener + http + "cleartext_credentials = false\n")


def test_a_protocol_without_credentials_needs_a_network_or_a_certificate(tmp_path: Path) -> None:
    rheos = f'[[listener]]\nurl = "tls://0.0.0.0:1"\nprotocol = "rheos1"\n{SERVER}'
    by_certificate = '[[principal]]\nname = "a"\ncertificate = { subject = "CN=a" }\n'
    with pytest.raises(ConfigError, match="would refuse every client"):
        loaded(tmp_path, rheos + by_certificate)
    loaded(tmp_path, rheos + f'client_ca = "{TLS}/client-ca.pem"\n' + by_certificate)
    loaded(tmp_path, rheos + '[[principal]]\nname = "a"\nnetworks = ["10.0.0.0/8"]\n')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('client_ca = "nowhere.pem"', "no such file"),
        (f'client_ca = "{TLS}/localhost.key"', "no certificate of an authority"),
        ('client_certificate = "optional"', "client_certificate needs client_ca"),
    ],
)
def test_authorities_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(tmp_path, f'{TOKEN}[[listener]]\nurl = "tls://127.0.0.1:1"\n{SERVER}{text}\n')


ISSUER = (
    '[[jwt]]\nissuer = "https://id.example"\naudience = "penstock"\n'
    'algorithms = ["HS256"]\nkeys = ["secret"]\n'
)


def test_an_issuer_reads_its_keys_beside_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"penstock.toml:5: jwt\[0\].keys: .*/secret cannot be"):
        loaded(tmp_path, ISSUER)
    (tmp_path / "secret").write_bytes(b"x" * 32)
    config = loaded(tmp_path, ISSUER)
    assert config.jwt[0].keys == (str(tmp_path / "secret"),)
    with pytest.raises(ConfigError, match=r"jwt\[1\].issuer: jwt\[0\] has the same"):
        loaded(tmp_path, ISSUER * 2)
    with pytest.raises(ConfigError, match="algorithms"):
        loaded(tmp_path, ISSUER.replace("HS256", "none"))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_bytes(b"x" * 32)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match=r"install penstock-broker\[jwt\]"):
        loaded(tmp_path, ISSUER)
