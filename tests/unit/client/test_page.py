"""docs/clients.md says what the code does."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest

import penstock
from penstock.client import Delivery, Unsupported
from penstock.client.options import ConnectOptions, Credentials
from penstock.client.sessions import session_factory
from penstock.client.sessions.base import Hook
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.wire.lamamq import HookType
from tests.support.live import LiveBroker

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "clients.md").read_text()


def test_the_options_are_those_of_connect() -> None:
    parameters = inspect.signature(penstock.connect).parameters
    shown = re.findall(
        r"^\| `(\w+)` \|([^|]*)\|", PAGE.split("## Options")[1].split("##")[0], re.MULTILINE
    )
    assert [name for name, _ in shown] == list(parameters)
    assert set(parameters) - {"url"} == set(ConnectOptions.__annotations__)
    for name, default in shown:
        said = default.strip()
        if said in {"None", "True"} or said[:1].isdigit():
            assert str(parameters[name].default) == said


def test_the_operations_are_those_of_the_protocols() -> None:
    table = PAGE.split("## Operations by protocol")[1].split("## Publishing")[0]
    rows = {
        cells[0].strip("` "): [cell.strip() == "yes" for cell in cells[1:]]
        for line in table.splitlines()
        if line.startswith("| `") and (cells := line.strip("|").split("|"))
    }
    for column, protocol in enumerate(PROTOCOLS):
        for operation, supported in rows.items():
            assert supports(protocol, operation) is supported[column], (protocol, operation)


def supports(protocol: Protocol, operation: str) -> bool:
    session = session_factory(protocol, Credentials())()
    client = penstock.connect("tcp://127.0.0.1:1", protocol=protocol)
    calls = {
        "publish": lambda: session.publish("channel/7", [b""]),
        "register_service": lambda: client.register_service,
        "request_service": lambda: client.request_service,
        "publish_many": lambda: session.publish("channel/7", [b"", b""]),
        "subscribe": lambda: session.subscribe("channel/7"),
        "consume": lambda: client.consume("channel/7", group="g"),
        "nack": lambda: session.answer_delivery(Delivery("t", b"", None, origin=(None, 1)), "no"),
        "unsubscribe": lambda: session.unsubscribe("channel/7"),
        "create_topic": lambda: session.create_topic("channel/7"),
        "ping": session.ping,
        "request": lambda: session.request(1, "/", b""),
        "serve": lambda: client.serve("/", lambda _: None),
        "notify": lambda: session.notify({1000: "/"}, b"", None),
        "broadcast": lambda: session.broadcast(b"", None),
        "notifications": client.notifications,
        "middleware": lambda: session.register(Hook("h", HookType.CONNECT)),
    }
    if protocol is FLEXIMQ:
        session._client_id = 1000
    try:
        calls[operation]()
    except Unsupported as error:
        return error.operation != operation
    return True


@pytest.mark.parametrize("path", re.findall(r"`((?:examples|client)/[\w./]+)`", PAGE))
def test_files_on_the_page_exist(path: str) -> None:
    assert (ROOT / path).exists() or (ROOT / "src" / "penstock" / path).exists()


def test_errors_on_the_page_exist() -> None:
    section = PAGE.split("## Errors")[1].split("##")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            for name in re.findall(r"`(\w+)`", line.split("|")[1]):
                assert hasattr(penstock.client, name)


def test_the_code_on_the_page_runs() -> None:
    asynchronous, synchronous = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with LiveBroker() as live:
        for block in (asynchronous, synchronous):
            code = block.replace("127.0.0.1:7000", "{}:{}".format(*live.address))
            exec(compile(code, "docs/clients.md", "exec"), {"asyncio": asyncio})  # noqa: S102
