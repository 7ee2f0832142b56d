"""The page and the example say what the configuration is."""

from pathlib import Path

import msgspec
import pytest

from penstock.server.config import (
    AuditConfig,
    Config,
    GroupConfig,
    ListenerConfig,
    PrincipalConfig,
    ProgramConfig,
    RoleConfig,
    RuleConfig,
)
from penstock.server.config_environment import variables
from penstock.server.config_loading import load
from penstock.server.config_reload import RELOADABLE
from penstock.transport.addresses import OPTIONS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text()


def tables() -> dict[str, msgspec.Struct]:
    return {
        name: getattr(Config(), name)
        for name in ("broker", "limits", "http", "data", "herald", "groups", "tracing")
    }


@pytest.mark.parametrize("name", ["broker", "limits", "groups", "tracing"])
def test_the_page_has_every_setting_with_its_default(name: str) -> None:
    table = tables()[name]
    for field in msgspec.structs.fields(table):
        default = getattr(table, field.name)
        shown = f'`"{default}"`' if isinstance(default, str) else str(default)
        shown = shown.lower() if isinstance(default, bool) else shown
        rows = {f"| `{field.name}` | {each} |" for each in (shown, shown.removesuffix(".0"))}
        assert any(row in PAGE for row in rows), rows


@pytest.mark.parametrize(
    "kind",
    [
        AuditConfig,
        GroupConfig,
        ListenerConfig,
        PrincipalConfig,
        ProgramConfig,
        RoleConfig,
        RuleConfig,
    ],
)
def test_the_page_has_every_key_of_a_list(kind: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(kind):
        assert f"`{field.encode_name}`" in PAGE, field.encode_name


def test_a_listener_has_a_key_for_every_option_of_a_url() -> None:
    keys = {field.encode_name for field in msgspec.structs.fields(ListenerConfig)}
    assert keys == {"url", *OPTIONS}


def test_what_is_reloaded_exists_and_is_on_the_page() -> None:
    paths = [path for path, _ in variables().values()]
    known = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
    assert known >= RELOADABLE
    for key in RELOADABLE - {
        "principal",
        "anonymous.default",
        "anonymous.roles",
        "anonymous.rule",
        "anonymous.quota",
    }:
        assert f"`{key}`" in PAGE.split("## Reloading")[1], key


def test_the_example_is_right() -> None:
    config = load(ROOT / "examples" / "penstock.toml")
    assert len(config.listener) == 4
    assert [principal.name for principal in config.principal] == ["panel", "gateway"]
    assert config.channels == {1: "plant/heartbeat", 7: "plant/alarms"}
    assert config.data.folder == str(ROOT / "examples" / "penstock-data")
