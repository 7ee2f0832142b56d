"""Wrong arguments of the client library: refused before anything is sent; the client goes on."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import client as library
from penstock.client import (
    BadOption,
    Client,
    FieldOutOfRange,
    InvalidTopicName,
    InvalidValue,
    Unencodable,
)
from penstock.client.errors import __all__ as client_errors
from penstock.protocols import PROTOCOLS, Protocol
from tests.support.live import LiveBroker

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
CHANNEL = 7
TOPIC = f"channel/{CHANNEL}"
WRONG: tuple[Any, ...] = (5, None, "text", [1, 2], 1.5, {}, object())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LiveBroker() as broker:
        host, port = broker.address
        yield f"tcp://{host}:{port}"


async def connected(url: str, protocol: Protocol) -> tuple[Client, Client]:
    """A publisher of the protocol, and a client that sees what arrives."""
    watcher = penstock.connect(url, protocol="herald")
    await watcher.open()
    client = penstock.connect(url, protocol=protocol, timeout=5)
    await client.open()
    return client, watcher


async def is_unharmed(client: Client, watcher: Client, sent: int) -> None:
    """What the client publishes next arrives, alone, under an id of its own."""
    stream = await watcher.subscribe(CHANNEL)
    values = [b"after-%d-%d" % (sent, number) for number in range(3)]
    ids = [await client.publish(TOPIC, value) for value in values]
    assert [(await stream.get(5)).value for _ in values] == values
    if ids[0] is not None:
        assert len(set(ids)) == len(ids)
        assert sorted(ids, key=lambda each: each.int) == ids  # type: ignore[union-attr]
    await watcher.unsubscribe(CHANNEL)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.label)
def test_a_value_of_a_wrong_type_is_refused_and_nothing_is_sent(
    url: str, protocol: Protocol
) -> None:
    """Once broken: half a frame was sent, and later answers belonged to other calls."""

    async def test() -> None:
        client, watcher = await connected(url, protocol)
        for number, wrong in enumerate(WRONG):
            with pytest.raises(InvalidValue, match="value 0 is of type"):
                await client.publish(TOPIC, wrong)
            with pytest.raises(InvalidValue, match="value 2 is of type") as caught:
                await client.publish_many(TOPIC, [b"a", b"b", wrong])
            assert caught.value.index == 2
            await is_unharmed(client, watcher, number)
        await client.close()
        await watcher.close()

    asyncio.run(test())


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.label)
def test_other_wrong_arguments_leave_the_connection_as_it_was(url: str, protocol: Protocol) -> None:
    carries = protocol.carries

    async def test() -> None:
        client, watcher = await connected(url, protocol)
        wrong: list[tuple[type[Exception], dict[str, Any]]] = [
            (BadOption, {"status": "200"}),
            (BadOption, {"routing": {"1": "/"}}),
            (BadOption, {"routing": [1]}),
            (BadOption, {"headers": {"name": 5}}),
            (BadOption, {"headers": [("name",)]}),
        ]
        if carries.messagepack:
            wrong.append((Unencodable, {"payload": object()}))
            wrong.append((FieldOutOfRange, {"status": 1 << 40}))
        for number, (error, keywords) in enumerate(wrong):
            with pytest.raises(error):
                await client.publish(TOPIC, **keywords)
            await is_unharmed(client, watcher, number)
        with pytest.raises((BadOption, library.NotAChannel)):
            await client.publish(None, b"")  # type: ignore[arg-type]
        with pytest.raises((InvalidTopicName, library.NotAChannel)):
            await client.publish("a/+/b", b"")
        with pytest.raises((InvalidTopicName, FieldOutOfRange, library.NotAChannel)):
            await client.publish("x" * 70_000, b"")
        with pytest.raises((InvalidTopicName, library.NotAChannel)):
            await client.publish("a@earliest", b"")
        if protocol.label != "herald":
            with pytest.raises(library.InvalidStart, match="did you mean @earliest"):
                await client.subscribe("a@ealiest")
        if protocol.label.startswith("rheos"):
            with pytest.raises(InvalidTopicName, match="@#7 for a start position"):
                await client.create_topic("a@#7")
        with pytest.raises((BadOption, FieldOutOfRange, library.NotAChannel)):
            await client.subscribe(b"x")  # type: ignore[arg-type]
        if not carries.messagepack:  # a fleximq broker may allow more than it does by default
            with pytest.raises(FieldOutOfRange):
                await client.publish(TOPIC, bytes(17 << 20))
        await is_unharmed(client, watcher, 100)
        await client.close()
        await watcher.close()

    asyncio.run(test())


def test_buffers_are_taken_as_they_are_now(url: str) -> None:
    async def test() -> None:
        client, watcher = await connected(url, PROTOCOLS["rheos2"])
        stream = await watcher.subscribe(CHANNEL)
        buffer = bytearray(b"first")
        publishing = asyncio.create_task(client.publish(TOPIC, buffer))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        buffer[:] = b"later"
        await publishing
        await client.publish_many(TOPIC, [memoryview(b"view"), bytearray(b"array")])  # type: ignore[list-item]
        assert [(await stream.get(5)).value for _ in range(3)] == [b"first", b"view", b"array"]
        await client.close()
        await watcher.close()

    asyncio.run(test())


def test_an_iterator_publishes_what_comes_before_an_invalid_value(url: str) -> None:
    async def test() -> None:
        client, watcher = await connected(url, PROTOCOLS["rheos2"])

        def values() -> Iterator[Any]:
            yield from (b"%d" % number for number in range(1500))
            yield None

        with pytest.raises(InvalidValue, match="value 1500 is of type NoneType"):
            await client.publish_many(TOPIC, values())
        await is_unharmed(client, watcher, 0)
        await client.close()
        await watcher.close()

    asyncio.run(test())


def test_every_error_is_exported_and_on_the_page() -> None:
    described = set(re.findall(r"`(\w+)`", PAGE.split("## Errors")[1].split("## Modules")[0]))
    raised = {*client_errors, "FieldOutOfRange", "InvalidStart", "InvalidTopicName", "Unencodable"}
    raised |= {"InvalidMessage", "CallerError", "PeerError"}
    assert raised <= set(library.__all__)
    assert raised <= described
