"""Many wrong passwords of one address delay its own clients, and no others."""

import base64
import socket
import time
from collections.abc import Iterator

import argon2
import pytest

from penstock.conform.fleximq.encoding import JOIN, frame, parse
from penstock.server.config import (
    BasicConfig,
    BrokerConfig,
    Config,
    LimitsConfig,
    ListenerConfig,
    PrincipalConfig,
)
from tests.support.configured import ConfiguredBroker

ATTACKERS = 400
PASSWORD = "correct horse"  # noqa: S105


@pytest.fixture
def broker() -> Iterator[ConfiguredBroker]:
    cheap = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
    encoded = cheap.hash(PASSWORD)
    user = BasicConfig(username="ada", password_hash=encoded)
    config = Config(
        broker=BrokerConfig(durability="memory"),
        limits=LimitsConfig(handshake_seconds_max=60),
        listener=(
            ListenerConfig(url="tcp://127.0.0.1:0", anonymous=False),
            ListenerConfig(url="ws://127.0.0.1:0/ws", anonymous=False),
        ),
        principal=(PrincipalConfig(name="a", basic=user),),
    )
    with ConfiguredBroker(config) as made:
        yield made


def connected(broker: ConfiguredBroker, index: int, source: str) -> socket.socket:
    made = socket.socket()
    made.settimeout(30)
    made.bind((source, 0))
    made.connect(("127.0.0.1", broker.port(index)))
    return made


def join(username: str, password: str) -> bytes:
    auth = {"type": "basic", "username": username, "password": password}
    return frame(JOIN, 0, {"auth": auth})


def checks(broker: ConfiguredBroker) -> int:
    waiting: int = broker.call(lambda: broker.running.authenticator.password_checks)
    return waiting


def log_in(broker: ConfiguredBroker, source: str) -> float:
    """Log in with the right password, by fleximq and by HTTP; return the seconds it took."""
    started = time.monotonic()
    with connected(broker, 0, source) as client:
        client.sendall(join("ada", PASSWORD))
        assert parse(client.recv(4096)).header["status"] == 200
    assert get(broker, PASSWORD, source) == b"200"
    return time.monotonic() - started


def get(broker: ConfiguredBroker, password: str, source: str) -> bytes:
    """Send a request with a password; return the status."""
    with connected(broker, 1, source) as client:
        given = base64.b64encode(f"ada:{password}".encode()).decode()
        head = f"GET /api/topics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {given}"
        client.sendall(f"{head}\r\n\r\n".encode())
        return client.recv(100)[9:12]


def test_an_honest_client_logs_in_while_400_attackers_wait(broker: ConfiguredBroker) -> None:
    log_in(broker, "127.0.0.2")  # imports what HTTP needs
    alone = log_in(broker, "127.0.0.3")  # another address: its password is hashed again
    attackers = [connected(broker, 0, "127.0.0.1") for _ in range(ATTACKERS)]
    try:
        for number, attacker in enumerate(attackers):
            attacker.sendall(join(f"user-{number}", "wrong"))
        broker.until(lambda: checks(broker) > 150, seconds_max=20)
        # Behind two verifications that run; in one queue, behind more than 150.
        assert log_in(broker, "127.0.0.4") < 20 * alone + 1
        assert checks(broker) > 50, "they did not have to wait for the attackers"
    finally:
        for attacker in attackers:
            attacker.close()
    # Those that left are not verified: they take no more time than to find that out.
    broker.until(lambda: checks(broker) == 0, seconds_max=5)


def test_wrong_passwords_by_http_are_delayed_too(broker: ConfiguredBroker) -> None:
    for number in range(6):
        assert get(broker, f"wrong-{number}", "127.0.0.1") == b"401"
    assert get(broker, PASSWORD, "127.0.0.1") == b"401", "for a while"
    assert get(broker, PASSWORD, "127.0.0.2") == b"200"


def test_a_client_that_closes_its_sending_side_gets_its_answer(broker: ConfiguredBroker) -> None:
    with connected(broker, 0, "127.0.0.1") as client:
        client.sendall(join("ada", PASSWORD))
        client.shutdown(socket.SHUT_WR)
        assert parse(client.recv(4096)).header["status"] == 200
