"""Parts of the memory budget that belong to no connection: topics, passwords, blocks of the log."""

import asyncio
from pathlib import Path

import argon2

from penstock._kernels.topics import TopicTable
from penstock.limits import (
    BLOCK_BYTES_MAX,
    MIB,
    TOPIC_BYTES,
    TOPIC_NAME_COPIES,
    TOPICS_MEMORY_SHARE,
    VERIFICATIONS_AT_ONCE_MAX,
)
from penstock.memory import Purpose
from penstock.server.config import (
    BasicConfig,
    BrokerConfig,
    Config,
    DataConfig,
    LimitsConfig,
    ListenerConfig,
    PrincipalConfig,
)
from penstock.server.credentials import hash_password
from penstock.storage.arrow.log import ArrowLog
from tests.support.configured import ConfiguredBroker
from tests.support.rheos_bytes import CREATE, FAILED, RHEOS2, Client
from tests.support.written_log import message

BUDGET = 256 * MIB
NAMES = 240
NAME = b"a/" + b"n" * 60_000


def configured(folder: Path, *, bytes_max: int = BUDGET, **more: object) -> Config:
    return Config(
        data=DataConfig(folder=str(folder)),
        listener=(ListenerConfig(url="tcp://127.0.0.1:0"),),
        limits=LimitsConfig(memory_bytes_max=bytes_max),
        broker=BrokerConfig(topic_names_bytes_per_principal_max=64 * MIB),
        **more,  # type: ignore[arg-type]
    )


def test_topics_are_drawn_at_what_they_take_and_have_a_share_of_the_budget(tmp_path: Path) -> None:
    """Once broken: 64 MiB of names took 340 MiB, which no account held."""
    config = configured(tmp_path)
    share = int((BUDGET * 7 / 8 - sum(config.memory_fixed.values())) * TOPICS_MEMORY_SHARE)
    with ConfiguredBroker(config) as broker:
        memory = broker.running.server.broker.memory
        with Client(("127.0.0.1", broker.port(0)), RHEOS2) as client:
            answers = [client.ask(CREATE, NAME + b"%d" % number) for number in range(NAMES)]
        refused = sum(answer == FAILED for answer in answers)
        made = NAMES - refused
        assert made * len(NAME) * TOPIC_NAME_COPIES > share - MIB
        assert refused
        broker.until(lambda: share - MIB < memory.fixed(Purpose.NAMES) < share + MIB)


def test_memory_is_kept_for_the_verification_of_passwords(tmp_path: Path) -> None:
    """Once broken: two verifications took 128 MiB that nothing had drawn."""
    small = argon2.PasswordHasher(memory_cost=20 * 1024, time_cost=2).hash("password")
    operator = PrincipalConfig(
        name="operator", basic=BasicConfig(username="operator", password_hash=small)
    )
    config = configured(tmp_path, principal=(operator,))
    with ConfiguredBroker(config) as broker:
        memory = broker.running.server.broker.memory
        assert memory.fixed(Purpose.PASSWORDS) == VERIFICATIONS_AT_ONCE_MAX * 20 * MIB
        costly = PrincipalConfig(
            name="operator",
            basic=BasicConfig(username="operator", password_hash=hash_password("password")),
        )
        broker.reload(configured(tmp_path, principal=(costly,)))
        assert memory.fixed(Purpose.PASSWORDS) == BUDGET // 4, "not more than a quarter"
        broker.reload(configured(tmp_path))
        assert memory.fixed(Purpose.PASSWORDS) == 0


def test_a_small_budget_keeps_memory_for_clients_beside_topics_and_passwords(
    tmp_path: Path,
) -> None:
    operator = PrincipalConfig(
        name="operator",
        basic=BasicConfig(username="operator", password_hash=hash_password("password")),
    )
    config = configured(tmp_path, bytes_max=96 * MIB, principal=(operator,))
    with ConfiguredBroker(config) as broker:
        memory = broker.running.server.broker.memory
        settings = config.broker_settings
        most = (
            TOPIC_BYTES * settings.topics_max + TOPIC_NAME_COPIES * settings.topic_names_bytes_max
        )
        kept = memory.reserved + memory.fixed(Purpose.PASSWORDS) + most
        assert kept < memory.large_bytes_max


def test_blocks_of_large_messages_are_not_kept_for_the_next(tmp_path: Path) -> None:
    """Once broken: each of them kept up to 30 MiB, and a steady load never freed them."""

    async def write() -> list[int]:
        log = ArrowLog(tmp_path)
        log.attach(TopicTable(), lambda: None)
        for size in (12 * MIB, 100, 12 * MIB, BLOCK_BYTES_MAX - MIB):
            log.append_record(message("t", bytes(size)))
            await log.flush()
        kept = [block.held_bytes for block in log._appends._spare]
        log.close()
        return kept

    kept = asyncio.run(write())
    assert kept
    assert max(kept) < BLOCK_BYTES_MAX + MIB
