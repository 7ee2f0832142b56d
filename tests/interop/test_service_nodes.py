"""Services by name whose servers are clients of another node: of two nodes on one log in Kafka."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from penstock.client import Client, Refused, Request
from penstock.ports.services import ServedPath
from penstock.service_messages import SERVE_PREFIX, path_of_requests
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.interop.test_service_topics import ask, client, is_served, run, serve
from tests.support.live import LiveBroker
from tools.kafka import KafkaBroker

Nodes = tuple[LiveBroker, LiveBroker]


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[Nodes]:
    topic = f"services-{secrets.token_hex(4)}"

    def node(number: int) -> LiveBroker:
        options = KafkaOptions(kafka.address, topic, number)
        return LiveBroker(open_storage=lambda: KafkaLog(options))

    with node(0) as first, node(1) as second:
        first.until(lambda: set(first.server.storage.partitions) == {0, 1}, seconds_max=30)
        yield first, second


@contextlib.asynccontextmanager
async def served(
    broker: LiveBroker, protocol: str, path: str, name: bytes
) -> AsyncIterator[Client]:
    """A server that says its name, and what it was asked."""

    def answer(request: Request) -> bytes:
        return name + b": " + request.value

    async with client(broker, protocol) as server:
        await serve(server, answer, path)
        yield server


def until_served(broker: LiveBroker, path: str, *, count: int = 1) -> None:
    """Wait until a node knows that clients of other nodes serve a path."""
    services = broker.server.broker.services

    def found() -> bool:
        elsewhere = services.elsewhere.nodes(path.removeprefix("/"))
        return sum(each.servers + each.subscribers for each in elsewhere.values()) == count

    broker.until(found, seconds_max=20)


@pytest.mark.parametrize("serving", ["fleximq", "lamamq"])
@pytest.mark.parametrize("asking", ["fleximq", "rheos2"])
def test_a_server_of_another_node_answers_until_it_leaves(
    nodes: Nodes, asking: str, serving: str
) -> None:
    here, there = nodes
    path = f"/price-{asking}-{serving}"

    async def test() -> None:
        async with client(here, asking) as asker:
            async with served(there, serving, path, b"there"):
                until_served(here, path)
                assert await ask(asker, b"\x00\n7", path) == b"there: \x00\n7"
                many = [ask(asker, b"%d" % number, path) for number in range(20)]
                assert await asyncio.gather(*many) == [b"there: %d" % each for each in range(20)]
            until_served(here, path, count=0)
            with pytest.raises(Refused, match=f"no client serves {path}") as caught:
                await ask(asker, b"7", path)
            assert caught.value.answer == 503

    run(test())


@pytest.mark.parametrize("here_serves", ["fleximq", "lamamq"])
def test_servers_of_the_own_node_come_first(nodes: Nodes, here_serves: str) -> None:
    here, there = nodes
    path = f"/near-{here_serves}"

    async def test() -> None:
        async with client(here, "fleximq") as asker, served(there, "fleximq", path, b"there"):
            until_served(here, path)
            async with served(here, here_serves, path, b"here"):
                for _ in range(3):
                    assert await ask(asker, b"?", path) == b"here: ?"
            here.until(lambda: not is_served(here, path[1:]))
            assert await ask(asker, b"?", path) == b"there: ?"

    run(test())


def test_a_node_gives_requests_of_others_to_its_least_busy_server(nodes: Nodes) -> None:
    here, there = nodes
    holds = asyncio.Event()

    async def test() -> None:
        async with (
            client(here, "fleximq") as asker,
            client(there, "fleximq") as slow,
            served(there, "fleximq", "/busy", b"quick"),
        ):

            async def hold(request: Request) -> bytes:
                await holds.wait()
                return b"slow: " + request.value

            await serve(slow, hold, "/busy")
            until_served(here, "/busy", count=2)
            first = [asyncio.ensure_future(ask(asker, b"%d" % each, "/busy")) for each in range(2)]
            done, held = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == len(held) == 1
            for number in range(4):
                assert await ask(asker, b"%d" % number, "/busy") == b"quick: %d" % number
            known = there.server.broker.services
            pending = there.call(lambda: known.pending(known.servers("busy")))
            assert pending == 1
            holds.set()
            assert (await held.pop()).startswith(b"slow: ")

    run(test())


@pytest.mark.parametrize("asking", ["fleximq", "lamamq"])
def test_a_server_that_leaves_before_it_answers_is_reported(nodes: Nodes, asking: str) -> None:
    here, there = nodes
    path = f"/leaves-{asking}"
    asked = asyncio.Event()

    async def hold(request: Request) -> bytes:
        asked.set()
        await asyncio.Event().wait()
        return request.value

    async def test() -> None:
        async with client(here, asking) as asker:
            async with client(there, "fleximq") as server:
                await serve(server, hold, path)
                until_served(here, path)
                waiting = asyncio.ensure_future(ask(asker, b"?", path))
                await asked.wait()
            with pytest.raises(Refused, match="has left") as caught:
                await waiting
            assert caught.value.answer == 600

    run(test())


def test_a_wildcard_of_another_node_serves_all_its_paths(nodes: Nodes) -> None:
    here, there = nodes

    async def test() -> None:
        async with client(there, "lamamq") as server, client(here, "fleximq") as asker:
            await server.register_service("/wide/+", lambda request: request.value)
            until_served(here, "/wide/apples")
            assert await ask(asker, b"7", "/wide/apples") == b"7"

    run(test())


def test_services_of_a_process_that_is_gone_are_not_asked(nodes: Nodes) -> None:
    """A node that is killed leaves its records behind; another process has its number now."""
    here, there = nodes
    state = there.server.storage.sessions._state
    gone = msgspec.json.encode(ServedPath(process="gone", servers=1))
    state.put("service/1/ghost", gone)
    state.put("service/7/ghost", gone)
    elsewhere = here.server.broker.services.elsewhere
    here.until(lambda: len(elsewhere.known("ghost")) == 2, seconds_max=20)
    assert not here.call(lambda: elsewhere.nodes("ghost"))

    async def test() -> None:
        async with client(here, "fleximq") as asker:
            with pytest.raises(Refused, match="503"):
                await ask(asker, b"?", "/ghost")

    run(test())


def test_a_node_that_starts_removes_the_services_of_its_last_process(kafka: KafkaBroker) -> None:
    options = KafkaOptions(kafka.address, f"services-{secrets.token_hex(4)}", 0)

    def keys(log: KafkaLog) -> set[str]:
        log._state.refresh()
        return set(log._state.values("service/"))

    log = KafkaLog(options)
    log._state.put("service/0/old", msgspec.json.encode(ServedPath(process="gone", servers=1)))
    log._state.put("service/1/other", msgspec.json.encode(ServedPath(process="x", servers=1)))
    log.close()
    log = KafkaLog(options)
    try:
        assert keys(log) == {"1/other"}
        log.services.put("new", servers=1, subscribers=0, failed=lambda: None)
        assert keys(log) == {"0/new", "1/other"}
    finally:
        log.close()
    log = KafkaLog(options)
    try:
        assert keys(log) == {"1/other"}
    finally:
        log.close()


def test_lists_name_the_nodes_of_a_service(nodes: Nodes) -> None:
    here, there = nodes

    async def test() -> None:
        async with (
            client(here, "fleximq") as asker,
            served(here, "fleximq", "/listed", b"here"),
            served(there, "fleximq", "/listed", b"there"),
            served(there, "lamamq", "/listed", b"there"),
            served(there, "lamamq", "/far", b"there"),
        ):
            until_served(here, "/listed", count=2)
            until_served(here, "/far")
            reply = await asker.request(1, "/services")
            found = {each["path"]: each for each in reply.payload["services"]}
            assert found["/listed"] == {
                "path": "/listed",
                "servers": 2,
                "pending": 0,
                "nodes": [0, 1],
            }

    run(test())
    assert not here.call(
        lambda: here.server.broker.router.is_subscribed(
            f"{SERVE_PREFIX}listed", where=path_of_requests
        )
    )
