"""The client library with a live broker, in every protocol and over every transport."""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import (
    Backoff,
    Client,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    HeaderIs,
    HookCall,
    HookStrategy,
    HookType,
    PartlyRefused,
    Refused,
    Request,
    RequestFailed,
    State,
    StateChanged,
    TimedOut,
    TopicIs,
    Unsupported,
)
from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS, Protocol
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ
from penstock.protocols.rheos1 import RHEOS1
from penstock.protocols.rheos2 import RHEOS2
from penstock.server.listener import new_listener
from penstock.server.server import Server
from penstock.transport.addresses import parse_address
from penstock.transport.stream import ReceiveBuffer
from tests.support.live import LiveBroker

VALUES = [b"", b"\x00", bytes(range(256)), b"\xfe\xca\x10\xfa\x02\xac" * 40, bytes(60_000)]
CERTIFICATE = Path(__file__).parents[1] / "support" / "tls" / "localhost.pem"
QUICK = Backoff(seconds_min=0.01, seconds_max=0.1)

every = pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=lambda protocol: protocol.label)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LiveBroker() as live:
        host, port = live.address
        yield f"tcp://{host}:{port}"


@contextlib.asynccontextmanager
async def broker(port: int = 0, **options: Any) -> AsyncIterator[int]:
    """A broker in the test's own loop; gives its port."""
    server = Server()
    await server.start()
    _, port = await server.listen_tcp(port=port, options=GatewayOptions(**options))
    try:
        yield port
    finally:
        await server.stop(seconds_max=1)


# --- Bridges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", list(PROTOCOLS), ids=lambda protocol: protocol.label)
@pytest.mark.parametrize("target", list(PROTOCOLS), ids=lambda protocol: protocol.label)
def test_what_one_publishes_the_other_receives(
    url: str, source: Protocol, target: Protocol
) -> None:
    async def test() -> None:
        topic = f"channel/{source.number * 16 + target.number}"
        async with (
            penstock.connect(url, protocol=source) as publisher,
            penstock.connect(url, protocol=target) as subscriber,
            subscriber.subscribe(topic) as messages,
        ):
            for value in VALUES:
                message_id = await publisher.publish(topic, value)
                assert (message_id is not None) is (source in (RHEOS1, RHEOS2))
            many = [b"%d" % number for number in range(3000)]
            assert await publisher.publish_many(topic, many) == 3000
            for value in VALUES + many:
                message = await messages.get(timeout=5)
                assert (message.topic, message.value) == (topic, value)

    run(test())


@every
def test_a_client_hears_its_own_messages_among_its_acknowledgments(
    url: str, protocol: Protocol
) -> None:
    async def test() -> None:
        topic = f"channel/{protocol.number}"
        async with penstock.connect(url, protocol=protocol, queue_max=16) as client:
            messages = await client.subscribe(topic)
            sending = asyncio.create_task(
                client.publish_many(topic, [b"%d" % number for number in range(2000)])
            )
            for number in range(2000):
                message = await messages.get(timeout=5)
                assert message.value == b"%d" % number
            await sending
            # The consumer publishes too, with a queue that is full all the time.
            await client.publish_many(topic, [b"x"] * 100)
            for _ in range(100):
                await messages.get(timeout=5)
                await client.publish(topic, b"y")

    run(test())


@pytest.mark.parametrize("protocol", [RHEOS2, FLEXIMQ, LAMAMQ])
def test_wildcards_bring_each_topic_to_who_asked_for_it(url: str, protocol: Protocol) -> None:
    async def test() -> None:
        base = f"wild/{protocol.label}"
        async with (
            penstock.connect(url, protocol="lamamq") as publisher,
            penstock.connect(url, protocol=protocol) as client,
            client.subscribe(f"{base}/+") as level,
            client.subscribe(f"{base}/#") as rest,
        ):
            for name in ("a", "a/b", "c"):
                await publisher.publish(f"{base}/{name}", name.encode())
            assert [(await rest.get(5)).topic for _ in range(3)] == [
                f"{base}/a", f"{base}/a/b", f"{base}/c",
            ]  # fmt: skip
            assert [(await level.get(5)).value for _ in range(2)] == [b"a", b"c"]

    run(test())


@pytest.mark.parametrize("protocol", [HERALD, FLEXIMQ, LAMAMQ])
def test_unsubscribed_means_not_one_message_more(url: str, protocol: Protocol) -> None:
    async def test() -> None:
        async with penstock.connect(url, protocol=protocol) as client:
            left = await client.subscribe("channel/90")
            kept = await client.subscribe("channel/91")
            await client.unsubscribe("channel/90")
            await client.publish("channel/90", b"unheard")
            await client.publish("channel/91", b"heard")
            assert (await kept.get(5)).value == b"heard"
            assert [message async for message in left] == []

    run(test())


def test_rheos_makes_topics_and_says_why_not(url: str) -> None:
    async def test() -> None:
        for protocol in (RHEOS1, RHEOS2):
            topic = f"made/by/{protocol.label}"
            async with penstock.connect(url, protocol=protocol) as client:
                with pytest.raises(Refused, match="does not exist"):
                    await client.publish(topic, b"")
                with pytest.raises(Refused, match="does not exist"):
                    await client.subscribe(topic)
                await client.create_topic(topic)
                with pytest.raises(Refused, match="exists already"):
                    await client.create_topic(topic)
                await client.publish(topic, b"")
                with pytest.raises(PartlyRefused) as caught:
                    await client.publish_many("nobody/made/this", [b"a", b"b"])
                assert [index for index, _ in caught.value.refusals] == [0, 1]
                with pytest.raises(Unsupported):
                    await client.unsubscribe(topic)

    run(test())


def test_rheos_1_tells_topics_apart_only_while_there_is_one(url: str) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url, protocol="rheos1") as client,
            penstock.connect(url, protocol="herald") as publisher,
        ):
            one = await client.subscribe("channel/80")
            await publisher.publish(80, b"a")
            assert (await one.get(5)).topic == "channel/80"
            other = await client.subscribe("channel/81")
            await publisher.publish(81, b"b")
            for stream in (one, other):
                message = await stream.get(5)
                assert (message.topic, message.value) == (None, b"b")

    run(test())


# --- What one protocol has ------------------------------------------------------------------------


def test_fleximq_payloads_are_any_messagepack(url: str) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url, protocol="fleximq") as client,
            client.subscribe("objects") as messages,
            penstock.connect(url, protocol="lamamq") as other,
            other.subscribe("objects") as raw,
        ):
            await client.publish("objects", payload={"celsius": 21.5}, status=202)
            await client.publish("objects", payload="text")
            first, second = await messages.get(5), await messages.get(5)
            assert (first.payload, first.status) == ({"celsius": 21.5}, 202)
            assert (second.payload, second.value) == ("text", b"text")
            assert (await raw.get(5)).value == first.value
            assert (await raw.get(5)).value == b"text"

    run(test())


def test_fleximq_publishes_to_listed_clients_only(url: str) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url, protocol="fleximq") as publisher,
            penstock.connect(url, protocol="fleximq") as listed,
            penstock.connect(url, protocol="fleximq") as other,
            listed.subscribe("routed") as to_listed,
            other.subscribe("routed") as to_other,
        ):
            assert listed.identity is not None
            await publisher.publish("routed", b"for one", routing={listed.identity: "/x"})
            await publisher.publish("routed", b"for all")
            assert (await to_listed.get(5)).value == b"for one"
            assert (await to_listed.get(5)).value == b"for all"
            assert (await to_other.get(5)).value == b"for all"

    run(test())


def test_requests_are_answered_by_who_serves(url: str) -> None:
    async def test() -> None:
        async def slowly(request: Request) -> object:
            await asyncio.sleep(0)
            return sum(request.payload)

        def refuses(_: Request) -> object:
            raise RequestFailed(409, {"why": "taken"})

        def breaks(_: Request) -> object:
            raise ZeroDivisionError

        async with (
            penstock.connect(url, protocol="fleximq") as server,
            penstock.connect(url, protocol="fleximq") as client,
        ):
            assert server.identity is not None
            server.serve("/sum", slowly)
            server.serve("/refuses", refuses)
            server.serve("/breaks", breaks)
            reply = await client.request(server.identity, "/sum", [1, 2, 3])
            assert (reply.payload, reply.status, reply.sender) == (6, 200, server.identity)
            many = [client.request(server.identity, "/sum", [n, 1]) for n in range(100)]
            assert [reply.payload for reply in await asyncio.gather(*many)] == list(range(1, 101))
            for path, status, text in (
                ("/refuses", 409, "taken"),
                ("/breaks", 500, "the handler failed"),
                ("/nothing", 404, "no such path"),
            ):
                with pytest.raises(Refused, match=text) as caught:
                    await client.request(server.identity, path)
                assert caught.value.answer == status
            with server.serve("/short", lambda _: None):
                assert (await client.request(server.identity, "/short")).payload is None
            with pytest.raises(Refused):
                await client.request(server.identity, "/short")

    run(test())


def test_a_request_fails_in_time(url: str) -> None:
    async def test() -> None:
        never = asyncio.Event()

        async def waits(_: Request) -> object:
            return await never.wait()

        async with penstock.connect(url, protocol="fleximq") as client:
            with pytest.raises(Refused) as caught:
                await client.request(4_000_000_000, "/")
            assert caught.value.answer == 600
            async with penstock.connect(url, protocol="fleximq") as server:
                server.serve("/waits", waits)
                assert server.identity is not None
                with pytest.raises(TimedOut, match=r"request got no answer within 0\.1 s"):
                    await client.request(server.identity, "/waits", timeout=0.1)
                left = asyncio.create_task(client.request(server.identity, "/waits"))
                await client.ping()
            with pytest.raises(Refused) as caught:
                await left
            assert caught.value.answer == 600

    run(test())


def test_the_broker_answers_as_client_1(url: str) -> None:
    async def test() -> None:
        async with penstock.connect(url, protocol="fleximq") as client:
            assert "timestamp" in (await client.request(1, "/time")).payload

    run(test())


def test_notifications_and_broadcasts_arrive(url: str) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url, protocol="fleximq") as sender,
            penstock.connect(url, protocol="fleximq") as receiver,
            receiver.notifications() as notices,
        ):
            assert receiver.identity is not None
            await sender.notify({receiver.identity: "/alerts"}, {"level": 3}, status=202)
            await sender.broadcast("to all")
            told, heard = await notices.get(5), await notices.get(5)
            assert (told.path, told.payload, told.status) == ("/alerts", {"level": 3}, 202)
            assert (heard.path, heard.payload) == (None, "to all")
            assert told.sender == heard.sender == sender.identity

    run(test())


def test_lamamq_headers_arrive(url: str) -> None:
    async def test() -> None:
        async with (
            penstock.connect(url, protocol="lamamq") as client,
            client.subscribe("with.headers") as messages,
        ):
            before = int(time.time())
            await client.publish("with.headers", b"v", headers={"kind": "ü", "raw": b"\xff"})
            message = await messages.get(5)
            assert message.headers == (("kind", "ü".encode()), ("raw", b"\xff"))
            assert message.timestamp_us is not None
            assert message.timestamp_us >= before * 1_000_000

    run(test())


def test_middleware_judges_messages_of_every_protocol() -> None:
    calls: list[tuple[str, str, bytes]] = []

    async def judge(call: HookCall) -> str | None:
        calls.append((call.event, call.protocol, call.value))
        await asyncio.sleep(0)
        return "too bad" if call.value == b"bad" else None

    async def test() -> None:
        async with broker() as port:
            url = f"tcp://127.0.0.1:{port}"
            async with (
                penstock.connect(url, protocol="lamamq") as guard,
                penstock.connect(url, protocol="lamamq") as client,
                penstock.connect(url, protocol="rheos2") as other,
                client.subscribe("channel/7") as messages,
            ):
                condition = TopicIs("channel/7")
                async with await guard.middleware("guard", judge, conditions=[condition]):
                    await client.publish("channel/7", b"good")
                    with pytest.raises(Refused, match="too bad") as caught:
                        await client.publish("channel/7", b"bad")
                    assert caught.value.answer == 4
                    with pytest.raises(Refused):
                        await other.publish("channel/7", b"bad")
                    with pytest.raises(PartlyRefused) as partly:
                        await client.publish_many("channel/7", [b"good", b"bad", b"good"])
                    assert [index for index, _ in partly.value.refusals] == [1]
                    await client.publish("channel/8", b"bad")
                await client.publish("channel/7", b"bad")
                got = [(await messages.get(5)).value for _ in range(4)]
                assert got == [b"good", b"good", b"good", b"bad"]
                assert ("push", "rheos2", b"bad") in calls
                assert len(calls) == 6

    run(test())


def test_middleware_that_breaks_refuses_and_one_that_is_only_told_cannot() -> None:
    def breaks(_: HookCall) -> str | None:
        raise ZeroDivisionError

    async def test() -> None:
        async with broker() as port:
            url = f"tcp://127.0.0.1:{port}"
            async with (
                penstock.connect(url, protocol="lamamq") as guard,
                penstock.connect(url, protocol="lamamq") as client,
            ):
                told: list[str] = []
                await guard.middleware(
                    "log",
                    lambda call: told.append(call.topic),
                    HookType.SUBSCRIBED,
                    strategy=HookStrategy.TELL,
                )
                await client.subscribe("a.b")
                await until(lambda: told == ["a.b"])
                await guard.middleware("breaks", breaks, conditions=[HeaderIs("k", b"v")])
                with pytest.raises(Refused, match="the middleware failed"):
                    await client.publish("t", b"", headers={"k": "v"})
                await client.publish("t", b"")
                with pytest.raises(Refused, match="taken"):
                    await client.middleware("log", lambda _: None)

    run(test())


# --- Refusals -------------------------------------------------------------------------------------


@every
def test_who_is_not_let_in_learns_it(protocol: Protocol) -> None:
    async def test() -> None:
        async with broker(anonymous=None) as port:
            client = penstock.connect(
                f"tcp://127.0.0.1:{port}", protocol=protocol, reconnect=False, timeout=5
            )
            if protocol in (RHEOS1, RHEOS2):
                # Rheos has no word for it: the first request fails and the connection ends.
                async with client:
                    await until(lambda: client.state is State.CLOSED)
                    with pytest.raises(ConnectionLost):
                        await client.publish("channel/7", b"")
            else:
                with pytest.raises(Refused):
                    await client.open()
                assert client.state is State.CLOSED

    run(test())


# --- Transports -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def listening(address: str) -> AsyncIterator[str]:
    """A broker behind one listener of any kind; gives where a client finds it."""
    server = Server()
    await server.start()
    listener = new_listener(parse_address(address), server.broker, ReceiveBuffer())
    await listener.start()
    try:
        yield listener.url
    finally:
        listener.stop_accepting()
        await listener.close(seconds_max=1)
        await server.stop(seconds_max=1)


async def round_trip(url: str, protocol: Protocol, **options: Any) -> None:
    async with (
        penstock.connect(url, protocol=protocol, **options) as client,
        client.subscribe("channel/7") as messages,
    ):
        values = [bytes([number % 256]) * 1000 for number in range(3000)]
        sending = asyncio.create_task(client.publish_many("channel/7", values))
        for value in values:
            assert (await messages.get(5)).value == value
        await sending


@every
def test_every_protocol_over_ipc(tmp_path: Path, protocol: Protocol) -> None:
    async def test() -> None:
        async with listening(f"ipc://{tmp_path}/p.sock") as url:
            await round_trip(url, protocol)

    run(test())


@every
def test_every_protocol_over_tls(protocol: Protocol) -> None:
    async def test() -> None:
        key = CERTIFICATE.with_suffix(".key")
        async with listening(f"tls://127.0.0.1:0?certificate={CERTIFICATE}&key={key}") as url:
            with pytest.raises(ConnectFailed, match="certificate"):
                await penstock.connect(url, protocol=protocol).open()
            await round_trip(url, protocol, tls=ssl.create_default_context(cafile=CERTIFICATE))

    run(test())


def test_fleximq_over_websocket() -> None:
    async def test() -> None:
        async with listening("ws://127.0.0.1:0/ws") as url:
            await round_trip(url, FLEXIMQ)
            with pytest.raises(ConnectFailed):
                await penstock.connect(f"{url}/elsewhere", protocol="fleximq").open()

    run(test())


# --- Reconnecting ---------------------------------------------------------------------------------


@every
def test_subscriptions_go_on_when_the_broker_comes_back(protocol: Protocol) -> None:
    async def test() -> None:
        states: list[State] = []
        async with contextlib.AsyncExitStack() as stack:
            async with broker() as port:
                url = f"tcp://127.0.0.1:{port}"
                subscriber = await stack.enter_async_context(
                    penstock.connect(
                        url,
                        protocol=protocol,
                        backoff=QUICK,
                        on_event=lambda event: states.extend(
                            [event.state] if isinstance(event, StateChanged) else []
                        ),
                    )
                )
                publisher = await stack.enter_async_context(
                    penstock.connect(url, protocol="rheos2", backoff=QUICK)
                )
                first = await subscriber.subscribe("channel/7")
                await publisher.publish("channel/7", b"before")
                assert (await first.get(5)).value == b"before"
            await until(lambda: subscriber.state is State.RECONNECTING)
            async with broker(port):
                await until(lambda: subscriber.state is State.CONNECTED)
                await publisher.publish("channel/7", b"after")
                assert (await first.get(5)).value == b"after"
                await stack.aclose()
        assert states == [
            State.CONNECTING,
            State.CONNECTED,
            State.RECONNECTING,
            State.CONNECTED,
            State.CLOSED,
        ]

    run(test())


def test_middleware_goes_on_when_the_broker_comes_back() -> None:
    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with broker() as port:
                url = f"tcp://127.0.0.1:{port}"
                guard: Client = await stack.enter_async_context(
                    penstock.connect(url, protocol="lamamq", backoff=QUICK)
                )
                await guard.middleware("guard", lambda _: "never")
            async with broker(port):
                await until(lambda: guard.state is State.CONNECTED)
                async with penstock.connect(url, protocol="lamamq") as client:
                    with pytest.raises(Refused, match="never"):
                        await client.publish("t", b"")
                await stack.aclose()

    run(test())


# --- Without an event loop ------------------------------------------------------------------------


@every
def test_the_same_calls_work_without_an_event_loop(url: str, protocol: Protocol) -> None:
    topic = f"channel/{100 + protocol.number}"
    with (
        penstock.connect_sync(url, protocol=protocol) as client,
        client.subscribe(topic, timeout=5) as messages,
    ):
        assert client.state is State.CONNECTED
        assert client.protocol is protocol
        client.publish(topic, b"one")
        assert client.publish_many(topic, (b"%d" % number for number in range(1000))) == 1000
        assert next(messages).value == b"one"
        found = [next(messages).value for _ in range(1000)]
        assert found == [b"%d" % number for number in range(1000)]
        with pytest.raises(TimedOut):
            messages.get(timeout=0.01)


def test_waiting_threads_learn_of_the_end(url: str) -> None:
    client = penstock.connect_sync(url, protocol="fleximq")
    with pytest.raises(ClientClosed):
        client.publish("t", b"")
    client.open()
    messages = client.subscribe("t")
    found: list[list[object]] = []
    thread = threading.Thread(target=lambda: found.append(list(messages)))
    thread.start()
    client.close()
    thread.join(5)
    assert found == [[]]
    with pytest.raises(ClientClosed):
        client.publish("t", b"")
    client.close()


def test_requests_are_served_by_plain_functions(url: str) -> None:
    with (
        penstock.connect_sync(url, protocol="fleximq") as server,
        penstock.connect_sync(url, protocol="fleximq") as client,
        server.serve("/twice", lambda request: request.payload * 2),
        client.notifications(timeout=5) as notices,
    ):
        assert server.identity is not None
        assert client.identity is not None
        assert client.request(server.identity, "/twice", 21).payload == 42
        with pytest.raises(Refused):
            client.request(server.identity, "/thrice", timeout=5)
        server.notify({client.identity: "/n"}, "hello")
        assert next(notices).payload == "hello"
        server.broadcast("all")
        assert next(notices).payload == "all"
        assert client.ping() < 5


def test_middleware_without_an_event_loop() -> None:
    with LiveBroker() as live:
        url = "tcp://{}:{}".format(*live.address)
        with (
            penstock.connect_sync(url, protocol="lamamq") as guard,
            penstock.connect_sync(url, protocol="lamamq") as client,
        ):
            with guard.middleware("guard", lambda call: "no" if call.value else None):
                client.publish("t", b"")
                with pytest.raises(Refused, match="no"):
                    client.publish("t", b"v")
            client.publish("t", b"v")


def test_nobody_at_the_address_is_an_error_without_an_event_loop_too() -> None:
    threads = threading.active_count()
    with (
        pytest.raises(ConnectFailed),
        penstock.connect_sync("tcp://127.0.0.1:1", protocol="herald"),
    ):
        pass
    assert threading.active_count() == threads
