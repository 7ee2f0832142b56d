"""Services by name between clients of all protocols: through topics, where there are no requests."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.client import (
    Client,
    NamedService,
    Refused,
    Request,
    RequestFailed,
    TimedOut,
    Unsupported,
)
from penstock.gateway.options import GatewayOptions
from penstock.limits import REQUESTS_PENDING_MAX, SERVICE_QUEUE_BYTES_MAX
from penstock.protocols import PROTOCOLS
from penstock.protocols.fleximq import FLEXIMQ
from penstock.server.config import (
    AnonymousConfig,
    Config,
    IdentityConfig,
    PrincipalConfig,
    RuleConfig,
)
from penstock.server.credentials import hash_key
from penstock.service_messages import (
    ServiceReply,
    ServiceRequest,
    decode_reply,
    decode_request,
    path_of_requests,
)
from tests.support.live import LiveBroker
from tests.support.rights_broker import RightsBroker

CHANNELS = {
    1: "service/request/price",
    2: "service/serve/price",
    3: "service/reply/herald",
    4: "service/reply/broker/0",
}
ASKING = {"topic": 1, "reply_topic": 3, "reply_name": CHANNELS[3]}
SERVING = {"topic": 2, "reply_topic": 4}


@pytest.fixture(scope="module", params=["memory", "log"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveBroker]:
    data = None if request.param == "memory" else tmp_path_factory.mktemp("log")
    with LiveBroker(channels=CHANNELS, data=data) as broker:
        yield broker


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


def client(broker: LiveBroker, protocol: str, **more: Any) -> Client:
    host, port = broker.address
    return penstock.connect(f"tcp://{host}:{port}", protocol=protocol, timeout=5.0, **more)


async def serve(server: Client, handler: Any, path: str = "/price", **more: Any) -> NamedService:
    channels = SERVING if server.protocol.carries.channels else {}
    return await server.register_service(path, handler, **channels, **more)


async def ask(asker: Client, payload: object, path: str = "/price", **more: Any) -> bytes:
    channels = ASKING if asker.protocol.carries.channels else {}
    reply = await asker.request_service(path, payload, **channels, **more)
    return reply.value


def is_served(broker: LiveBroker, path: str = "price") -> bool:
    """Whether a client has registered a path, or subscribes to its topic."""
    core = broker.server.broker
    topic = f"service/serve/{path}"
    return path in core.services or core.router.is_subscribed(topic, where=path_of_requests)


@pytest.mark.parametrize("serving", PROTOCOLS.labels)
@pytest.mark.parametrize("asking", PROTOCOLS.labels)
def test_a_client_of_each_protocol_asks_a_server_of_each(
    broker: LiveBroker, asking: str, serving: str
) -> None:
    def price(request: Request) -> bytes:
        return b"12.50 for " + request.value

    async def test() -> None:
        async with client(broker, serving) as server, client(broker, asking) as asker:
            service = await serve(server, price)
            assert await ask(asker, b"\x00\n7") == b"12.50 for \x00\n7"
            many = [ask(asker, b"%d" % number) for number in range(20)]
            assert await asyncio.gather(*many) == [b"12.50 for %d" % each for each in range(20)]
            await service.close()
            broker.until(lambda: not is_served(broker))
            with pytest.raises(Refused, match="no client serves /price") as caught:
                await ask(asker, b"7")
            assert caught.value.answer == 503
            assert caught.value.protocol is FLEXIMQ

    run(test())


@pytest.mark.parametrize("serving", ["fleximq", "lamamq"])
@pytest.mark.parametrize("asking", ["fleximq", "rheos2"])
def test_failures_have_the_status_that_the_server_gives(
    broker: LiveBroker, asking: str, serving: str
) -> None:
    def fails(request: Request) -> object:
        if request.value == b"taken":
            raise RequestFailed(409, "sold out")
        raise ZeroDivisionError

    async def test() -> None:
        async with client(broker, serving) as server, client(broker, asking) as asker:
            broker.until(lambda: not is_served(broker, "fails"))  # by the server of a test before
            await serve(server, fails, "/fails")
            for value, status, text in (
                (b"taken", 409, "sold out"),
                (b"other", 500, "the handler failed"),
            ):
                with pytest.raises(Refused, match=text) as caught:
                    await ask(asker, value, "/fails")
                assert caught.value.answer == status

    run(test())


def test_servers_of_a_group_share_requests(tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[tuple[str, bytes]] = []

        def named(name: str) -> Any:
            def handle(request: Request) -> bytes:
                seen.append((name, request.value))
                return request.value

            return handle

        async with (
            client(broker, "lamamq") as first,
            client(broker, "rheos2") as second,
            client(broker, "fleximq") as asker,
        ):
            await serve(first, named("first"), group="prices")
            await serve(second, named("second"), group="prices")
            values = [b"%d" % number for number in range(40)]
            assert [await ask(asker, value) for value in values] == values
            assert [value for _, value in seen] == values  # each by one server
            assert {name for name, _ in seen} == {"first", "second"}

    with LiveBroker(data=tmp_path) as broker:
        run(test())


def test_herald_servers_share_requests_in_the_group_of_their_channel(tmp_path: Path) -> None:
    async def test() -> None:
        seen: list[bytes] = []

        def handle(request: Request) -> bytes:
            seen.append(request.value)
            return request.value

        async with (
            client(broker, "herald") as first,
            client(broker, "herald") as second,
            client(broker, "lamamq") as asker,
        ):
            with pytest.raises(Unsupported):
                await serve(first, handle, group="prices")
            await serve(first, handle)
            await serve(second, handle)
            groups = broker.server.broker.groups
            assert groups is not None
            members = await asyncio.to_thread(broker.call, lambda: len(groups.members("prices")))
            assert members == 2
            values = [b"%d" % number for number in range(20)]
            assert [await ask(asker, value) for value in values] == values
            assert seen == values  # each by one server

    options = GatewayOptions(herald_replay={2: "@group=prices"})
    with LiveBroker(data=tmp_path, channels=CHANNELS, options=options) as broker:
        run(test())


def test_the_first_of_several_answers_counts_and_a_late_one_has_no_effect(
    broker: LiveBroker,
) -> None:
    async def test() -> None:
        release = asyncio.Event()

        async def slowly(_: Request) -> bytes:
            await release.wait()
            return b"late"

        async with (
            client(broker, "lamamq") as slow,
            client(broker, "rheos1") as quick,
            client(broker, "fleximq") as asker,
        ):
            await serve(slow, slowly, "/both")
            await serve(quick, lambda _: b"first", "/both")
            assert await ask(asker, None, "/both") == b"first"
            release.set()
            assert await ask(asker, None, "/both") in {b"first", b"late"}

    run(test())


def test_a_request_that_several_servers_answer_brings_one_answer(broker: LiveBroker) -> None:
    """Looked at in the topic of the answers: the client library would drop a second one."""

    async def test() -> None:
        async with (
            client(broker, "lamamq") as first,
            client(broker, "lamamq") as second,
            client(broker, "lamamq") as asker,
        ):
            asked = [await server.subscribe("service/serve/once") for server in (first, second)]
            replies = await asker.subscribe("service/reply/till")
            for identifier in ("7", "8"):
                request = ServiceRequest(identifier, "service/reply/till", b"apples")
                await asker.publish("service/request/once", request.encode())
                for server, requests in zip((first, second), asked, strict=True):
                    got = decode_request((await anext(aiter(requests))).value)
                    answer = ServiceReply(got.identifier, 200, identifier.encode())
                    await server.publish(got.reply_topic, answer.encode())
            found = [decode_reply((await anext(aiter(replies))).value) for _ in range(2)]
            assert found == [ServiceReply("7", 200, b"7"), ServiceReply("8", 200, b"8")]

    run(test())


@pytest.mark.parametrize(("asking", "serving"), [("lamamq", "fleximq"), ("fleximq", "rheos1")])
def test_a_request_without_an_answer_times_out_and_one_of_a_server_that_leaves_gets_600(
    broker: LiveBroker, asking: str, serving: str
) -> None:
    async def test() -> None:
        started = asyncio.Event()

        async def never(_: Request) -> bytes:
            started.set()
            await asyncio.Event().wait()
            return b""

        async with client(broker, asking) as asker:
            async with client(broker, serving) as server:
                await serve(server, never, "/never")
                with pytest.raises(TimedOut, match=r"got no answer within 0\.1 s"):
                    await ask(asker, b"", "/never", timeout=0.1)
                started.clear()
                left = asyncio.create_task(ask(asker, b"", "/never"))
                await started.wait()
            with pytest.raises(Refused, match="the client has left") as caught:
                await left
            assert caught.value.answer == 600

    run(test())


def test_a_service_is_registered_again_after_a_reconnect(broker: LiveBroker) -> None:
    async def test() -> None:
        async with client(broker, "fleximq") as server, client(broker, "rheos2") as asker:
            await serve(server, lambda _: b"here", "/again")
            identity = server.identity
            session = broker.server.broker.sessions.get(identity or 0)
            assert session is not None
            broker.call(session.link.abort)
            while server.identity == identity:
                await asyncio.sleep(0.01)
            assert await ask(asker, b"", "/again") == b"here"

    run(test())


def test_a_topic_requester_has_the_limits_of_other_requests(broker: LiveBroker) -> None:
    async def test() -> None:
        async with (
            client(broker, "lamamq") as asker,
            client(broker, "fleximq", requests_max=2 * REQUESTS_PENDING_MAX) as server,
        ):
            held: list[asyncio.Future[bytes]] = []

            def hold(_: Request) -> asyncio.Future[bytes]:
                held.append(asyncio.get_running_loop().create_future())
                return held[-1]

            await serve(server, hold, "/held")
            async with asker.subscribe("answers/mine") as answers:
                line = b"%d answers/mine\n"
                count = REQUESTS_PENDING_MAX + 1
                values = [line % number for number in range(count)]
                await asker.publish_many("service/request/held", [*values, b"no line feed"])
                reply = await answers.get(5)
                assert reply.value == b"%d 429\ntoo many requests wait for answers" % (count - 1)
            assert broker.call(lambda: broker.server.broker.services.invalid) >= 1

    run(test())


def test_more_requests_than_the_broker_queues_are_all_answered(broker: LiveBroker) -> None:
    async def test() -> None:
        async with client(broker, "lamamq") as asker, client(broker, "fleximq") as server:
            await serve(server, lambda request: request.value[:2], "/flood")
            values = [b"%02d" % number + bytes(200_000) for number in range(40)]
            assert sum(map(len, values)) > 4 * SERVICE_QUEUE_BYTES_MAX
            answers = await asyncio.gather(*(ask(asker, value, "/flood") for value in values))
            assert answers == [value[:2] for value in values]

    run(test())


def named(broker: LiveBroker, name: str) -> Client:
    """Return a client of a principal."""
    return client(broker, "lamamq", name=name, key=name.encode())


def _principal(name: str, *rules: RuleConfig, default: Any = None) -> PrincipalConfig:
    identity = IdentityConfig(identity=name, key_sha256=hash_key(name.encode()))
    return PrincipalConfig(
        name=name, token=name, rule=rules, default=default, identity_key=identity
    )


def _allow(action: str, *topics: str) -> RuleConfig:
    return RuleConfig(allow=(action,), topics=topics)


def _deny(action: str, *topics: str) -> RuleConfig:
    return RuleConfig(deny=(action,), topics=topics)


def test_rights_are_those_of_the_requester_and_the_server(tmp_path: Path) -> None:
    topics = (_allow("publish", "service/#"), _allow("subscribe", "service/#"))
    config = Config(
        principal=(
            _principal("server", _allow("serve", "price"), *topics),
            _principal("asker", _allow("request", "price"), *topics),
            _principal("mute", *topics),
            _principal(
                "elsewhere",
                _allow("request", "price"),
                _allow("publish", "service/request/#"),
            ),
        ),
        anonymous=AnonymousConfig(default="deny"),
    )

    async def test() -> None:
        async with (
            named(broker, "server") as server,
            named(broker, "asker") as asker,
            named(broker, "mute") as mute,
            named(broker, "elsewhere") as elsewhere,
        ):
            await serve(server, lambda _: b"1")
            with pytest.raises(Refused, match="may not serve"):
                await serve(server, lambda _: b"1", "/other")
            with pytest.raises(Refused, match="may not serve"):
                await serve(mute, lambda _: b"1")
            assert await ask(asker, b"") == b"1"
            with pytest.raises(Refused, match="may not request") as caught:
                await ask(mute, b"")
            assert caught.value.answer == 403
            # The broker publishes no answer where the requester itself must not publish.
            before = broker.call(lambda: broker.server.broker.services.invalid)
            await elsewhere.publish("service/request/price", b"1 service/reply/asker\n")
            broker.until(lambda: broker.server.broker.services.invalid == before + 1)

    with RightsBroker(config, tmp_path) as broker:
        run(test())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker with a server, an asker, and a client that may publish and subscribe, no more."""
    config = Config(
        principal=(
            _principal("server"),
            _principal("asker"),
            _principal("other", _deny("request", "#"), _deny("serve", "#"), default="allow"),
            _principal("other-server", _deny("serve", "price"), default="allow"),
        ),
        anonymous=AnonymousConfig(default="deny"),
    )
    with RightsBroker(config, tmp_path) as broker:
        yield broker


def test_a_client_that_may_not_request_publishes_no_request_to_servers(guarded: LiveBroker) -> None:
    async def test() -> None:
        async with (
            named(guarded, "server") as server,
            named(guarded, "other") as other,
            await server.subscribe("service/serve/+") as requests,
        ):
            for topic in ("service/serve/price", "service.serve.price", "service.serve/price"):
                with pytest.raises(Refused, match="may not publish"):
                    await other.publish(topic, b"1 service/reply/other\nforged")
            await other.publish("service/served/price", b"another topic")
            async with named(guarded, "asker") as asker:
                asked = asyncio.ensure_future(ask(asker, b"genuine"))
                line, _, value = (await anext(requests)).value.partition(b"\n")
                assert value == b"genuine", "no forged request came before it"
                token, reply_topic = line.decode().split(" ")
                await server.publish(reply_topic, f"{token} 200\n7".encode())
                assert await asked == b"7"

    run(test())


@pytest.mark.parametrize(
    "pattern", ["service/serve/price", "service.serve.+", "service/serve.*", "service.serve/#"]
)
def test_a_client_without_the_right_cannot_subscribe_as_a_server(
    guarded: LiveBroker, pattern: str
) -> None:
    async def test() -> None:
        async with named(guarded, "other") as other:
            for text in (pattern, f"{pattern}@earliest"):
                with pytest.raises(Refused, match="may not serve"):
                    await other.subscribe(text)
            with pytest.raises(Refused, match="may not serve"):
                await other.consume(pattern, group="spies").open()

    run(test())


def test_subscribers_of_either_separator_serve_a_path(guarded: LiveBroker) -> None:
    async def test() -> None:
        async with (
            named(guarded, "server") as server,
            named(guarded, "asker") as asker,
            await server.subscribe("service.serve.+") as requests,
        ):
            asked = asyncio.ensure_future(ask(asker, b"how much"))
            line, _, _value = (await anext(requests)).value.partition(b"\n")
            token, reply_topic = line.decode().split(" ")
            await server.publish(reply_topic, f"{token} 200\n7".encode())
            assert await asked == b"7"

    run(test())


@pytest.mark.parametrize("forger", ["other", "other-server"])
def test_an_answer_of_a_client_that_may_not_serve_the_path_does_not_count(
    guarded: LiveBroker, forger: str
) -> None:
    async def test() -> None:
        async with (
            named(guarded, "server") as server,
            named(guarded, "asker") as asker,
            named(guarded, forger) as other,
            await server.subscribe("service/serve/price") as requests,
            await other.subscribe("service/+/price") as seen,
        ):
            asked = asyncio.ensure_future(ask(asker, b"how much"))
            line, _, _value = (await anext(requests)).value.partition(b"\n")
            token, reply_topic = line.decode().split(" ")
            while not (await anext(seen)).value.startswith(line):
                pass  # the request of the asker, which has the same levels
            if forger == "other":  # it may serve nothing
                with pytest.raises(Refused, match="may not publish"):
                    await other.publish(reply_topic, f"{token} 200\nforged".encode())
            else:
                before = guarded.call(lambda: guarded.server.broker.services.invalid)
                await other.publish(reply_topic, f"{token} 200\nforged".encode())
                guarded.until(lambda: guarded.server.broker.services.invalid == before + 1)
            await server.publish(reply_topic, f"{token} 200\ngenuine".encode())
            assert await asked == b"genuine"

    run(test())
