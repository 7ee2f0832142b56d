"""A reload changes what a running broker can change, and names the rest."""

from msgspec.structs import replace

from penstock.server.config import (
    BrokerConfig,
    Config,
    DataConfig,
    HeraldConfig,
    HttpConfig,
    LimitsConfig,
    ListenerConfig,
    PrincipalConfig,
    ProgramConfig,
)
from penstock.server.config_reload import reload

OLD = Config(listener=(ListenerConfig(url="tcp://127.0.0.1:7000"),))


def test_the_same_configuration_changes_nothing() -> None:
    reloaded, waiting = reload(OLD, OLD)
    assert (reloaded.config, reloaded.changed, waiting) == (OLD, (), [])


def test_what_can_change_is_in_effect() -> None:
    new = replace(
        OLD,
        broker=BrokerConfig(slow_consumer="disconnect", subscriptions_max=5),
        principal=(PrincipalConfig(name="a", api_key_sha256="ab" * 32),),
    )
    reloaded, waiting = reload(OLD, new)
    assert waiting == []
    assert reloaded.config == new
    assert set(reloaded.changed) == {
        "broker.slow_consumer",
        "broker.subscriptions_max",
        "principal",
    }


def test_what_cannot_change_is_named_and_stays() -> None:
    new = Config(
        broker=BrokerConfig(durability="os", sessions_max=5, hold_seconds_max=9),
        limits=LimitsConfig(handshake_seconds_max=3),
        http=HttpConfig(address="127.0.0.1:1"),
        data=DataConfig(folder="/elsewhere"),
        herald=HeraldConfig(channels={"1": "a"}),
        listener=(ListenerConfig(url="tcp://127.0.0.1:7001"),),
        program=(ProgramConfig(command=("x",)),),
    )
    reloaded, waiting = reload(OLD, new)
    assert set(waiting) == {
        "broker.durability",
        "broker.sessions_max",
        "limits.handshake_seconds_max",
        "http.address",
        "data.folder",
        "herald.channels",
        "listener",
        "program",
    }
    assert reloaded.changed == ("broker.hold_seconds_max",)
    assert reloaded.config == replace(OLD, broker=BrokerConfig(hold_seconds_max=9))
