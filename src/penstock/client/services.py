"""Services through topics, for protocols without requests; see `penstock.service_messages`.

Requests and services have connections of their own: Rheos v1 does not tell the deliveries of
several subscriptions apart.
"""

import asyncio
import contextlib
import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

from penstock.client.consumer import Consumer
from penstock.client.errors import (
    BadOption,
    ConnectionLost,
    Refused,
    RequestFailed,
    TimedOut,
    Unsupported,
)
from penstock.client.handlers import RequestHandler
from penstock.client.options import Options
from penstock.client.registrations import NamedService
from penstock.client.streams import Stream
from penstock.client.topics import Topic, channel_topic
from penstock.client.values import Delivery, Reply, raw_value, service_reply, service_request
from penstock.errors import PeerError, PenstockError
from penstock.protocols import Protocol as WireProtocol
from penstock.service_messages import (
    HANDLER_FAILED,
    REPLY_PREFIX,
    REQUEST_PREFIX,
    SERVE_PREFIX,
    SUCCESS,
    ServiceReply,
    ServiceRequest,
    decode_reply,
    decode_request,
)

__all__ = ["TopicServices"]


class TopicClient(Protocol):
    """The calls of `Client` that are used here."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def publish(self, topic: Topic, value: bytes = b"") -> object: ...
    async def create_topic(self, topic: Topic) -> None: ...
    def subscribe(self, topic: Topic) -> Stream[Delivery]: ...
    def consume(self, topic: Topic, *, group: str) -> Consumer: ...


class TopicServices:
    """The services and requests of a client whose protocol has no requests."""

    def __init__(
        self,
        another: Callable[[], TopicClient],
        protocol: WireProtocol,
        options: Options,
        *,
        report: Callable[[Exception], None],
    ) -> None:
        """`another` returns a client for a connection of its own."""
        self._another = another
        self._protocol = protocol
        self._options = options
        self._report = report
        self._services: dict[_TopicService, None] = {}
        self._requests: dict[str, _TopicRequests] = {}  # by the name of the reply topic
        self._lock = asyncio.Lock()
        self._reply_topic = ""

    async def register(
        self,
        path: str,
        handler: RequestHandler,
        *,
        topic: Topic | None,
        group: str | None,
        reply_topic: Topic | None,
    ) -> NamedService:
        """See `Client.register_service`."""
        service = _TopicService(
            self._another(),
            handler,
            path=path,
            topic=self._topic(topic, SERVE_PREFIX, path),
            group=group,
            reply_topic=reply_topic,
            requests_max=self._options.requests_max,
            ensure_topics=self._protocol.carries.topics_created,
            report=self._report,
        )
        await service.open()
        self._services[service] = None

        async def close() -> None:
            self._services.pop(service, None)
            await service.close(seconds_max=self._options.timeout)

        return NamedService(path, close)

    async def request(
        self,
        path: str,
        payload: object,
        *,
        topic: Topic | None,
        reply_topic: Topic | None,
        reply_name: str | None,
        seconds_max: float,
    ) -> Reply:
        """See `Client.request_service`."""
        value = raw_value(payload)
        asked = self._topic(topic, REQUEST_PREFIX, path)
        if reply_topic is None:
            if self._protocol.carries.channels:
                raise BadOption("reply_topic", "is needed: the channel of the answers")
            name = self._options.credentials.name
            self._reply_topic = self._reply_topic or _default_reply_topic(name)
            reply_topic = self._reply_topic
        requests = await self._requests_of(reply_topic, reply_name)
        return await requests.request(asked, value, seconds_max)

    async def close(self) -> None:
        """End all services, and close all connections."""
        services, self._services = self._services, {}
        requests, self._requests = self._requests, {}
        for service in services:
            await service.close(seconds_max=0)
        for each in requests.values():
            await each.close()

    async def _requests_of(self, topic: Topic, name: str | None) -> "_TopicRequests":
        """Return the open requests of a reply topic."""
        if name is None:
            name = topic if isinstance(topic, str) else channel_topic(topic)
        async with self._lock:
            found = self._requests.get(name)
            if found is not None and found.ended:
                await found.close()
                found = None
            if found is None:
                creates = self._protocol.carries.topics_created
                client = self._another()
                found = _TopicRequests(client, topic=topic, name=name, ensure_topics=creates)
                await found.open()
                self._requests[name] = found
            return found

    def _topic(self, topic: Topic | None, prefix: str, path: str) -> Topic:
        if topic is None and self._protocol.carries.channels:
            raise BadOption("topic", "is needed: the channel of the requests")
        return f"{prefix}{path.removeprefix('/')}" if topic is None else topic


def _default_reply_topic(name: str | None) -> str:
    """Return the reply topic of a client that gives none.

    Clients without a name share 256 topics, so that their number stays small: topics are kept.
    """
    return REPLY_PREFIX + (name or secrets.token_hex(1))


class _TopicRequests:
    """Sends requests by topics, and waits for their answers in one reply topic."""

    def __init__(
        self, client: TopicClient, *, topic: Topic, name: str, ensure_topics: bool
    ) -> None:
        """`name` is that of the reply topic `topic` in the broker."""
        self._client = client
        self._topic = topic
        self._name = name
        self._ensures_topics = ensure_topics
        self._ensured: set[Topic] = set()
        self._waiting: dict[str, asyncio.Future[ServiceReply]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and subscribe to the reply topic; raise as `Client.open` and `subscribe` do."""
        await self._client.open()
        try:
            if self._ensures_topics:
                await _ensure_topic(self._client, self._topic)
            stream = await self._client.subscribe(self._topic)
        except BaseException:
            await self._client.close()
            raise
        self._reading = asyncio.create_task(self._read(stream))

    async def close(self) -> None:
        """Close the connection; pending requests raise ConnectionLost."""
        await self._client.close()
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def ended(self) -> bool:
        """Whether the subscription has ended, so that no answer will come."""
        return self._reading is None or self._reading.done()

    async def request(self, topic: Topic, value: bytes, seconds_max: float) -> Reply:
        """Publish a request and return its reply; raise Refused, TimedOut or ConnectionLost."""
        identifier = secrets.token_hex(8)
        answer: asyncio.Future[ServiceReply] = asyncio.get_running_loop().create_future()
        self._waiting[identifier] = answer
        message = ServiceRequest(identifier, self._name, value).encode()
        try:
            async with asyncio.timeout(seconds_max):
                if self._ensures_topics and topic not in self._ensured:
                    await _ensure_topic(self._client, topic)
                    self._ensured.add(topic)
                await self._client.publish(topic, message)
                reply = await answer
        except TimedOut:
            raise
        except TimeoutError:
            raise TimedOut("request_service", seconds_max) from None
        finally:
            del self._waiting[identifier]
        return service_reply(reply)

    async def _read(self, stream: Stream[Delivery]) -> None:
        reason = "the client was closed"
        try:
            async for delivery in stream:
                try:
                    reply = decode_reply(delivery.value)
                except PeerError:
                    continue
                waiter = self._waiting.get(reply.identifier)
                if waiter is not None and not waiter.done():
                    waiter.set_result(reply)
        except PenstockError as error:
            reason = str(error)
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(ConnectionLost(reason))


class _TopicService:
    """Answers the requests of a topic until it is closed."""

    def __init__(
        self,
        client: TopicClient,
        handler: RequestHandler,
        *,
        path: str,
        topic: Topic,
        group: str | None,
        reply_topic: Topic | None,
        requests_max: int,
        ensure_topics: bool,
        report: Callable[[Exception], None],
    ) -> None:
        self._client = client
        self._handler = handler
        self._path = path
        self._topic = topic
        self._group = group
        self._reply_topic = reply_topic
        self._places = asyncio.Semaphore(requests_max)
        self._ensures_topics = ensure_topics
        self._report = report
        self._consumer: Consumer | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and subscribe; raise as `Client.open` and `subscribe` do."""
        await self._client.open()
        try:
            if self._ensures_topics:
                await _ensure_topic(self._client, self._topic)
            requests = await self._requests()
        except BaseException:
            await self._client.close()
            raise
        self._reading = asyncio.create_task(self._read(requests))

    async def _requests(self) -> AsyncIterator[tuple[bytes, Callable[[], Awaitable[object]]]]:
        """Subscribe; return an iterator over values, with what acknowledges each."""
        if self._group is not None:
            consumer = self._consumer = self._client.consume(self._topic, group=self._group)
            await consumer.open()
            return ((each.value, each.ack) async for each in consumer)
        stream = await self._client.subscribe(self._topic)
        return ((each.value, _nothing) async for each in stream)

    async def close(self, *, seconds_max: float) -> None:
        """Finish the answers that were begun, those that take no longer, and disconnect."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._answering:
            _, late = await asyncio.wait(self._answering, timeout=seconds_max)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._consumer is not None:
            await self._consumer.close()
        await self._client.close()

    async def _read(
        self, requests: AsyncIterator[tuple[bytes, Callable[[], Awaitable[object]]]]
    ) -> None:
        try:
            async for value, acknowledge in requests:
                await self._places.acquire()
                task = asyncio.create_task(self._answer(value, acknowledge))
                self._answering.add(task)
                task.add_done_callback(self._answered)
        except PenstockError as error:  # the subscription was refused after a reconnect
            self._report(error)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._places.release()

    async def _answer(self, value: bytes, acknowledge: Callable[[], Awaitable[object]]) -> None:
        try:
            request = decode_request(value)
        except PeerError as error:
            self._report(error)
            await acknowledge()
            return
        status, answer = await self._result(request)
        topic: Topic = request.reply_topic if self._reply_topic is None else self._reply_topic
        try:
            await self._client.publish(
                topic, ServiceReply(request.identifier, status, answer).encode()
            )
            await acknowledge()
        except PenstockError as error:
            self._report(error)

    async def _result(self, request: ServiceRequest) -> tuple[int, bytes]:
        try:
            result: Any = self._handler(service_request(request, self._path))
            if inspect.isawaitable(result):
                result = await result
            return SUCCESS, raw_value(result)
        except RequestFailed as failed:
            return failed.status, raw_value(failed.payload)
        except Exception as error:  # noqa: BLE001
            # Any failure of the handler is answered and reported; the client goes on.
            self._report(error)
            return HANDLER_FAILED, b"the handler failed"


async def _ensure_topic(client: TopicClient, topic: Topic) -> None:
    """Create a topic where the protocol requires it; do nothing if it exists."""
    with contextlib.suppress(Refused, Unsupported):
        await client.create_topic(topic)


async def _nothing() -> None:
    pass
