"""Apache Kafka with a listener that asks for TLS and SASL."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tools.kafka import free_ports, start_brokers

TLS = Path(__file__).with_name("tls")
HOST = "127.0.0.1"
USER = "penstock"
PASSWORD = "correct horse"  # noqa: S105
SECONDS_MAX = 60.0


class SecureKafka(NamedTuple):
    """A Kafka whose `address` asks for TLS, and for PLAIN or SCRAM-SHA-256."""

    address: str

    def settings(self, mechanism: str = "PLAIN", **changed: str) -> dict[str, str]:
        """Settings of librdkafka; names in `changed` have `_` for a point."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(TLS / "localhost.pem"),
            **{name.replace("_", "."): value for name, value in changed.items()},
        }


@contextlib.contextmanager
def start_secure_kafka(folder: Path) -> Iterator[SecureKafka]:
    """Start it and add its user; raise KafkaMissing or KafkaFailed."""
    ports, (secure, _) = free_ports(1), free_ports(1)[0]
    inside, controllers = ports[0]
    store = folder / "certificate.pem"
    store.write_text((TLS / "localhost.key").read_text() + (TLS / "localhost.pem").read_text())
    modules = "org.apache.kafka.common.security"
    settings = {
        "listeners": f"CLIENTS://{HOST}:{inside},CONTROLLERS://{HOST}:{controllers},"
        f"SECURE://{HOST}:{secure}",
        "advertised.listeners": f"CLIENTS://{HOST}:{inside},SECURE://{HOST}:{secure}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT,SECURE:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        "listener.name.secure.scram-sha-256.sasl.jaas.config": (
            f"{modules}.scram.ScramLoginModule required;"
        ),
    }
    with start_brokers(folder / "kafka", ports, settings) as (broker,):
        admin = AdminClient({"bootstrap.servers": broker.address})
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        user = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        admin.alter_user_scram_credentials([user])[USER].result(timeout=SECONDS_MAX)
        yield SecureKafka(f"{HOST}:{secure}")
