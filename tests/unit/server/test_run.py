"""A running broker goes by its configuration, and by the next one."""

import asyncio
import time
from pathlib import Path

import pytest

from penstock.core.audiences import Encoding
from penstock.errors import CannotKeep, ConfigError
from penstock.ports import AuditEvent
from penstock.protocols.fleximq import FLEXIMQ
from penstock.server.config import (
    PROTOCOL_LIMITS,
    AnonymousConfig,
    Config,
    DataConfig,
    LimitsConfig,
    ListenerConfig,
    PrincipalConfig,
    RuleConfig,
)
from penstock.server.credentials import Authenticator
from penstock.server.descriptors import Descriptors
from penstock.server.run import Running, _connections_max, _reread, serve
from penstock.server.server import Server
from tests.support.fakes import RecordingLink


def running(config: Config) -> Running:
    return Running(config, Server(settings=config.broker_settings), Authenticator(config))


def principals(*names: str) -> Config:
    return Config(
        principal=tuple(
            PrincipalConfig(name=name, api_key_sha256=f"{index:02x}" * 32)
            for index, name in enumerate(names)
        )
    )


def test_every_limit_reaches_the_gateways() -> None:
    given = dict.fromkeys(PROTOCOL_LIMITS, 100)
    broker = running(Config(limits=LimitsConfig(**given, messages_per_second_max=7)))
    options = broker._options(None)
    assert options.frame_limits == given
    assert options.messages_per_second_max == 7
    assert running(Config())._options(None).messages_per_second_max is None


@pytest.mark.parametrize(("open_files", "expected"), [(100, 90), (1000, 200)])
def test_there_are_no_more_connections_than_open_files_allow(
    open_files: int, expected: int
) -> None:
    config = Config(limits=LimitsConfig(connections_max=200))
    assert _connections_max(config, Descriptors(limit=open_files, reserved=10)) == expected


@pytest.mark.parametrize("name", ["file", "file/data"])
def test_a_folder_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    config = Config(data=DataConfig(folder=str(tmp_path / name)))
    with pytest.raises(CannotKeep, match="it is a file, or below one; give another with --data"):
        asyncio.run(serve(config))


def test_a_reload_disconnects_those_whose_principal_is_gone() -> None:
    broker = running(principals("stays", "goes"))
    links: dict[str, RecordingLink] = {}
    for name, principal in broker.authenticator.principals.items():
        links[name] = RecordingLink()
        encoding = Encoding(FLEXIMQ, "big")
        broker.server.broker.open(encoding, links[name], principal=principal)
    broker.reload(principals("stays"))
    assert (links["stays"].closed, links["goes"].closed) == (False, True)
    assert (links["stays"].aborted, links["goes"].aborted) == (False, True)
    broker.authenticator.close()


def test_a_reload_keeps_what_needs_a_restart() -> None:
    broker = running(Config())
    broker.reload(Config(listener=(ListenerConfig(url="tcp://127.0.0.1:1"),)))
    assert broker.config.listener == ()
    broker.authenticator.close()


def test_anonymous_clients_are_the_anonymous_principal_where_they_are_let_in() -> None:
    config = Config(
        anonymous=AnonymousConfig(default="deny"),
        principal=principals("a").principal,
        listener=(
            ListenerConfig(url="tcp://127.0.0.1:0"),
            ListenerConfig(url="tcp://127.0.0.1:0?anonymous=false&protocol=fleximq"),
        ),
    )

    async def run() -> list[object]:
        broker = running(config)
        await broker.start()
        try:
            assert all(address.port for address in broker.addresses)
            options = [listener._options for listener in broker.server._listeners]  # type: ignore[attr-defined]
            assert options[0].anonymous is broker.authenticator.local_anonymous
            return [each.anonymous for each in options]
        finally:
            await broker.stop()

    assert asyncio.run(run())[1] is None


def test_rules_are_compiled_beside_the_event_loop() -> None:
    """Thousands of rules take long: the loop goes on meanwhile."""
    rule = RuleConfig(allow=("publish",), topics=tuple(f"a/{'+/' * 60}{n}" for n in range(1000)))
    new = Config(principal=(PrincipalConfig(name="a", api_key_sha256="ab" * 32, rule=(rule,)),))
    broker = running(Config())
    gaps: list[float] = []

    async def reload() -> None:
        reading = asyncio.create_task(_reread(broker, lambda: new))
        last = started = time.monotonic()
        while not reading.done():
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()
        assert len(broker.authenticator.principals["a"].rules) == 1000
        assert max(gaps) < 0.5 * (last - started)

    asyncio.run(reload())
    broker.authenticator.close()


def test_rules_that_were_compiled_for_another_configuration_are_not_used() -> None:
    broker = running(Config())
    prepared = broker.prepare(principals("old"))
    broker.reload(principals("new"), prepared)
    assert set(broker.authenticator.principals) == {"new"}
    broker.authenticator.close()


def test_a_configuration_that_is_rejected_is_in_the_audit_log_and_the_old_one_stays() -> None:
    recorded: list[tuple[AuditEvent, object]] = []

    class Audit:
        def record(self, event: AuditEvent, **fields: object) -> None:
            recorded.append((event, fields["code"]))

    def reread() -> Config:
        raise ConfigError("penstock.toml:1", "listener[0]", "holds no certificate")

    broker = running(principals("a"))
    broker.server.broker.audit = Audit()
    asyncio.run(_reread(broker, reread))
    assert recorded == [(AuditEvent.CONFIGURATION_REJECTED, str(ConfigError.code))]
    assert not broker.server.http.reload_succeeded
    assert broker.config == principals("a")
    broker.authenticator.close()
