"""The asynchronous client: one interface over five protocols."""

import asyncio
import dataclasses
import secrets
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

from penstock.client.address import STDIO, Address, parse_address
from penstock.client.connection import Connection, Waiter
from penstock.client.consumer import Consumer
from penstock.client.errors import (
    BadOption,
    ConnectionLost,
    PartlyRefused,
    Refused,
    TimedOut,
    Unsupported,
)
from penstock.client.handlers import HookHandler, RequestHandler
from penstock.client.options import (
    Backoff,
    Credentials,
    Observer,
    Options,
    ProtocolName,
    State,
)
from penstock.client.registrations import Middleware, NamedService, Service
from penstock.client.services import TopicServices
from penstock.client.sessions import Extras, Session
from penstock.client.sessions.base import NO_EXTRAS, Hook
from penstock.client.sessions.factory import session_factory
from penstock.client.streams import Queue, Stream
from penstock.client.supervisor import Supervisor
from penstock.client.topics import Topic, is_in_group, resumed, without_replay
from penstock.client.values import (
    Delivery,
    Headers,
    Notification,
    Reply,
    checked_values,
    header_pairs,
    packed,
    write_batches,
)
from penstock.closeable import AsyncCloseable
from penstock.errors import InvalidStart
from penstock.limits import DEDUPE_KEY_BYTES_MAX
from penstock.middleware import Condition, HookStrategy, HookType
from penstock.protocols import PROTOCOLS, Protocol
from penstock.replay import GROUP_HINT, check_replay
from penstock.service_messages import BROKER, SERVE_PATH, UNSERVE_PATH

__all__ = ["Client", "connect"]

Item = TypeVar("Item")

CLOSE_SECONDS_MAX: Final = 5.0


def connect(
    url: str | Sequence[str],
    *,
    protocol: ProtocolName | Protocol,
    name: str | None = None,
    token: str | None = None,
    username: str | None = None,
    password: str | None = None,
    api_key: str | None = None,
    key: bytes | str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = 30.0,
    queue_max: int = 1024,
    requests_max: int = 256,
    reconnect: bool = True,
    backoff: Backoff | None = None,
    keepalive: float | None = 10.0,
    on_event: Observer | None = None,
) -> "Client":
    """Return a client for the broker at `url`; `async with` connects it.

    With the URLs of several nodes, the client is connected to one of them: the first that can be
    reached. When the connection is lost, it goes on with the next one.

    docs/clients.md describes each option. Raise InvalidAddress, BadOption, or Unsupported for
    credentials that the protocol cannot carry.
    """
    credentials = Credentials(
        name=name,
        token=token,
        username=username,
        password=password,
        api_key=api_key,
        key=key.encode() if isinstance(key, str) else key,
    )
    options = Options(
        credentials=credentials,
        tls=tls,
        timeout=timeout,
        queue_max=queue_max,
        requests_max=requests_max,
        reconnect=reconnect,
        backoff=backoff or Backoff(),
        keepalive=keepalive,
        on_event=on_event,
    )
    if not isinstance(protocol, Protocol):
        if protocol not in PROTOCOLS:
            known = ", ".join(PROTOCOLS.labels)
            raise BadOption("protocol", f"is {protocol!r}, none of {known}")
        protocol = PROTOCOLS[protocol]
    credentials.check(protocol)
    addresses = _addresses(url)
    if addresses[0] is STDIO and STDIO.scheme not in protocol.transports:
        raise BadOption("protocol", f"is {protocol.label!r}, which programs of a broker do not use")
    return Client(addresses, protocol, options)


def _addresses(url: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses of nodes, or STDIO alone; raise InvalidAddress or BadOption."""
    if url == STDIO.url:
        return (STDIO,)
    urls = [url] if isinstance(url, str) else url
    if not urls:
        raise BadOption("url", "is empty; expected the URL of a broker, or of several nodes")
    return tuple(parse_address(each) for each in urls)


class Client(AsyncCloseable):
    """A client of one broker, created by `connect`.

    Operations that the protocol does not have raise Unsupported. During a reconnect, calls wait for
    the new connection within their timeout. A call whose request was sent but not answered when the
    connection was lost raises ConnectionLost.
    """

    def __init__(self, addresses: Sequence[Address], protocol: Protocol, options: Options) -> None:
        self.protocol = protocol
        self._addresses = addresses
        self._options = options
        new_session = session_factory(protocol, options.credentials)
        self._names = new_session()  # never connected: only canonical names of topics are needed
        self._supervisor = Supervisor(addresses, new_session, options)
        self._inbox = self._supervisor.inbox
        self._handlers = self._supervisor.handlers
        self._topic_services = TopicServices(
            self._another, protocol, options, report=self._supervisor.report
        )

    @property
    def state(self) -> State:
        """State of the client."""
        return self._supervisor.state

    @property
    def identity(self) -> int | None:
        """Client id assigned by the broker (herald, fleximq); it changes with each connection."""
        return self._supervisor.identity

    async def open(self) -> None:
        """Connect; on failure close the client and raise ConnectFailed, Refused or TimedOut."""
        await self._supervisor.open()

    async def close(self) -> None:
        """Close the connection; iterators end after the items that they already hold."""
        await self._topic_services.close()
        await self._supervisor.close(CLOSE_SECONDS_MAX)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    # --- Publish and subscribe --------------------------------------------------------------------

    async def publish(
        self,
        topic: Topic,
        value: bytes = b"",
        *,
        payload: object = None,
        headers: Headers = (),
        status: int | None = None,
        routing: Mapping[int, str] | None = None,
        dedupe: str | None = None,
    ) -> uuid.UUID | None:
        """Publish a value to a topic.

        Return after the acknowledgment, or after the write if the protocol acknowledges nothing.
        The result is the message id, if the protocol has one (Rheos).

        `dedupe` is a key, for LamaMQ and fleximq: a second message with it, of the same principal
        and to the same topic, is acknowledged and not stored.

        `headers` is for LamaMQ only. For fleximq only: `status`, `routing` (a path for each
        receiving client id) and `payload` (any value that MessagePack can encode, instead of
        `value`).

        Raise InvalidTopicName, InvalidValue, Unencodable, FieldOutOfRange, BadOption or Unsupported
        before anything is sent; Refused, ConnectionLost or TimedOut after that.
        """
        extras = NO_EXTRAS
        is_plain = payload is None and status is None and routing is None and dedupe is None
        if headers or not is_plain:
            extras = _extras(headers, status, routing, packed=payload is not None, dedupe=dedupe)
        if payload is not None:
            if value:
                raise BadOption("payload", "is in place of value; only one of them is sent")
            if self.protocol.carries.messagepack:
                value = packed(payload)
        result = await self._publish(topic, checked_values([value]), extras)
        return uuid.UUID(bytes=result) if isinstance(result, bytes) else None

    async def publish_many(
        self,
        topic: Topic,
        values: Iterable[bytes],
        *,
        headers: Headers = (),
        status: int | None = None,
    ) -> int:
        """Publish values to a topic in few writes and wait for all acknowledgments.

        Return the number of values. The timeout applies to each wait, not to the sum. Raise
        PartlyRefused if some values were refused and the others accepted, else as `publish` does.
        If `values` is an iterator, those before an invalid one are sent.
        """
        extras = _extras(headers, status, None)
        name = self._names.canonical(topic)
        connection = await self._supervisor.connected("publish_many")
        waiters: list[tuple[int, int, Waiter]] = []
        count = 0
        for batch in write_batches(values):
            waiter = connection.expect(connection.session.publish(name, batch, extras))
            if waiter is not None:
                waiters.append((count, len(batch), waiter))
            count += len(batch)
            await self._drain(connection, "publish_many")
        refusals: list[tuple[int, Refused]] = []
        for first, size, waiter in waiters:
            try:
                await connection.wait(waiter, "publish_many", self._options.timeout)
            except PartlyRefused as partly:
                refusals += ((first + index, error) for index, error in partly.refusals)
            except Refused as error:
                if size > 1:  # herald refused the publisher role, not one value
                    raise
                refusals.append((first, error))
        if refusals:
            raise PartlyRefused(tuple(refusals), count)
        return count

    def subscribe(
        self, topic: Topic, *, resume: bool = True, queue_max: int | None = None
    ) -> Stream[Delivery]:
        """Return an asynchronous iterator over the messages of a topic.

        The subscription starts with `async with`, `await` or the first item, which raise Refused,
        ConnectionLost or TimedOut. Messages from then on are delivered. After a reconnect the
        iterator goes on behind the last message that it has got, from the broker's log; without
        `resume`, with the next message. Raise InvalidStart if the topic ends in what is almost a
        start position, and BadOption if it names a consumer group, see `consume`.
        """
        name = self._names.canonical(topic)
        check_replay(name)
        if is_in_group(name):
            raise BadOption(
                "topic",
                f"{name[:200]!r} names a consumer group, whose messages must be acknowledged: "
                "use consume(topic, group=…), or penstock sub TOPIC --group NAME",
            )
        begin = partial(self._begin, resume=resume)
        return self._stream(name, begin, self._finish_stream, queue_max)

    def consume(
        self,
        topic: Topic,
        *,
        group: str,
        start: str | None = None,
        is_ordered: bool = False,
        queue_max: int | None = None,
    ) -> Consumer:
        """Return a member of a consumer group, which shares the messages of a topic with others.

        It has a connection of its own, to the first node that lets it join. A new group begins with
        the next message, or at `start`: `"earliest"`, a time, or `"#"` and an offset. With
        `is_ordered`, the messages of a topic go to one member. Raise InvalidStart, or Unsupported
        for herald, whose channels are bound to groups in the broker's configuration.
        """
        if self.protocol.carries.channels:
            raise Unsupported(self.protocol.label, "consume")
        parts = [f"group={group}", *([start] if start else []), *(["ordered=topic"] * is_ordered)]
        text = f"{self._names.canonical(topic)}@{','.join(parts)}"
        if not is_in_group(text):
            raise InvalidStart(text[:200], f"@{','.join(parts)}", GROUP_HINT)
        client = Client(self._addresses, self.protocol, self._options)
        return Consumer(
            close_client=client.close,
            connection=lambda: client._supervisor.connection,
            stream=client._stream(text, client._join, client._finish_stream, queue_max),
        )

    async def unsubscribe(self, topic: Topic) -> None:
        """Unsubscribe and end all iterators of a topic; no message follows the return."""
        text = self._names.canonical(topic)
        with self._inbox.leaving(without_replay(text)):
            await self._exchange("unsubscribe", lambda session: session.unsubscribe(text))
        for queue in self._inbox.restored_by(resumed(text)):
            queue.end()
            self._inbox.drop(queue)

    async def create_topic(self, topic: Topic) -> None:
        """Create a topic (Rheos); raise Refused if it exists."""
        name = self._names.canonical(topic)
        await self._exchange("create_topic", lambda session: session.create_topic(name))

    async def ping(self) -> float:
        """Return the round-trip time in seconds; all that was sent before has arrived by then."""
        start = time.monotonic()
        await self._exchange("ping", lambda session: session.ping())
        return time.monotonic() - start

    # --- Requests and notifications between clients (fleximq) -------------------------------------

    async def request(
        self,
        target: int,
        path: str,
        payload: object = None,
        *,
        timeout: float | None = None,
    ) -> Reply:
        """Send a request to the client with id `target` (1 is the broker) and return its reply.

        Raise Refused for a status other than success, else as `publish` does.
        """
        data = packed(payload)
        reply: Reply = await self._exchange(
            "request", lambda session: session.request(target, path, data), seconds_max=timeout
        )
        return reply

    def serve(self, path: str, handler: RequestHandler) -> Service:
        """Answer requests to `path` with the result of `handler` until the service is closed."""
        if not self.protocol.carries.requests:
            raise Unsupported(self.protocol.label, "serve")
        self._handlers.add_path(path, handler)
        return Service(path, lambda: self._handlers.drop_path(path))

    # --- Services by name -------------------------------------------------------------------------

    async def register_service(
        self,
        path: str,
        handler: RequestHandler,
        *,
        topic: Topic | None = None,
        group: str | None = None,
        reply_topic: Topic | None = None,
    ) -> NamedService:
        """Serve `path` for clients of all protocols; raises as `publish` does.

        Protocols without requests subscribe to the topic of the path, on a connection of their own:
        with `group`, as members of a consumer group that share the requests. `topic` and
        `reply_topic` are for herald: the channels of requests and answers.
        """
        if self.protocol.carries.requests:
            self._handlers.add_path(path, handler)
            try:
                await self.request(BROKER, SERVE_PATH, path)
            except BaseException:
                self._handlers.drop_path(path)
                raise
            self._handlers.named[path] = None
            return NamedService(path, partial(self._unregister_service, path))
        return await self._topic_services.register(
            path, handler, topic=topic, group=group, reply_topic=reply_topic
        )

    async def request_service(
        self,
        path: str,
        payload: object = None,
        *,
        timeout: float | None = None,
        topic: Topic | None = None,
        reply_topic: Topic | None = None,
        reply_name: str | None = None,
    ) -> Reply:
        """Send a request to a service and return its reply.

        In protocols without requests, the request goes to the topic of the path, and the answer
        comes in `reply_topic`; the payload of the reply is bytes. herald needs `topic` and
        `reply_topic`, which are channels, and `reply_name` if the broker names that channel.
        Raise Refused for a status other than success, else as `publish` does.
        """
        if self.protocol.carries.requests:
            return await self.request(BROKER, path, payload, timeout=timeout)
        seconds = self._options.timeout if timeout is None else timeout
        return await self._topic_services.request(
            path,
            payload,
            topic=topic,
            reply_topic=reply_topic,
            reply_name=reply_name,
            seconds_max=seconds,
        )

    def _another(self) -> "Client":
        """Return a client for a connection of its own; a herald name belongs to one connection."""
        credentials = self._options.credentials
        if self.protocol.carries.channels and credentials.name is not None:
            name = f"{credentials.name}-{secrets.token_hex(4)}"
            credentials = dataclasses.replace(credentials, name=name)
        options = dataclasses.replace(self._options, credentials=credentials, on_event=None)
        return Client(self._addresses, self.protocol, options)

    async def _unregister_service(self, path: str) -> None:
        self._handlers.named.pop(path, None)
        try:
            await self.request(BROKER, UNSERVE_PATH, path)
        finally:
            self._handlers.drop_path(path)

    async def notify(
        self, targets: Mapping[int, str], payload: object = None, *, status: int | None = None
    ) -> None:
        """Send a notification; `targets` maps each receiving client id to a path."""
        data = packed(payload)
        await self._send("notify", lambda session: session.notify(targets, data, status))

    async def broadcast(self, payload: object = None, *, status: int | None = None) -> None:
        """Send a notification to all clients."""
        data = packed(payload)
        await self._send("broadcast", lambda session: session.broadcast(data, status))

    def notifications(self, *, queue_max: int | None = None) -> Stream[Notification]:
        """Return an asynchronous iterator over notifications and broadcasts."""
        if not self.protocol.carries.requests:
            raise Unsupported(self.protocol.label, "notifications")

        async def begin(stream: Stream[Notification]) -> None:
            self._inbox.add_notices(stream.queue)

        async def finish(stream: Stream[Notification]) -> None:
            self._inbox.drop(stream.queue)

        return self._stream("", begin, finish, queue_max)

    # --- Middleware (LamaMQ) ----------------------------------------------------------------------

    async def middleware(
        self,
        name: str,
        handler: HookHandler,
        hook_type: HookType = HookType.MESSAGE_PUSHED,
        *,
        priority: int = 0,
        timeout_ms: int = 1000,
        strategy: HookStrategy = HookStrategy.WAIT_OR_REFUSE,
        conditions: Sequence[Condition] = (),
    ) -> Middleware:
        """Register a middleware; raises as `publish` does.

        `handler` is called for each event until the middleware is closed. It returns None to accept
        the event, or a text to refuse it.
        """
        hook = Hook(name, hook_type, priority, timeout_ms, strategy, tuple(conditions))
        self._handlers.add_hook(hook, handler)
        try:
            await self._exchange("middleware", lambda session: session.register(hook))
        except BaseException:
            self._handlers.drop_hook(name)
            raise
        return Middleware(name, self._unregister)

    async def _unregister(self, name: str) -> None:
        await self._exchange("middleware", lambda session: session.unregister(name))
        self._handlers.drop_hook(name)

    # --- Sending ----------------------------------------------------------------------------------

    async def _publish(self, topic: Topic, values: Sequence[bytes], extras: Extras) -> object:
        name = self._names.canonical(topic)
        connection = await self._supervisor.connected("publish")
        waiter = connection.expect(connection.session.publish(name, values, extras))
        if waiter is not None:
            return await connection.wait(waiter, "publish", self._options.timeout)
        await self._drain(connection, "publish")
        return None

    async def _exchange(
        self, operation: str, command: Callable[[Session], int], *, seconds_max: float | None = None
    ) -> Any:  # noqa: ANN401
        connection = await self._supervisor.connected(operation)
        ticket = command(connection.session)
        seconds = self._options.timeout if seconds_max is None else seconds_max
        return await connection.exchange(ticket, operation, seconds)

    async def _send(self, operation: str, command: Callable[[Session], None]) -> None:
        connection = await self._supervisor.connected(operation)
        command(connection.session)
        connection.expect(range(0))
        await self._drain(connection, operation)

    async def _drain(self, connection: Connection, operation: str) -> None:
        try:
            async with asyncio.timeout(self._options.timeout):
                await connection.drain()
        except TimeoutError:
            raise TimedOut(operation, self._options.timeout) from None
        if connection.lost_reason.done():
            raise ConnectionLost(connection.lost_reason.result())

    # --- Streams ----------------------------------------------------------------------------------

    def _stream(
        self,
        topic: str,
        begin: Callable[[Stream[Item]], Awaitable[None]],
        finish: Callable[[Stream[Item]], Awaitable[None]],
        queue_max: int | None,
    ) -> Stream[Item]:
        if queue_max is not None and queue_max <= 0:
            raise BadOption("queue_max", f"is {queue_max}, not above 0")
        items_max = queue_max or self._options.queue_max
        queue: Queue[Item] = Queue(items_max=items_max, low=self._inbox.low)
        return Stream(topic, queue, begin=begin, finish=finish, drop=self._inbox.drop)

    async def _begin(self, stream: Stream[Delivery], *, resume: bool) -> None:
        connection = await self._supervisor.connected("subscribe")
        # Add the queue first: messages may arrive together with the answer.
        self._inbox.add(stream.topic, stream.queue, resumes=resume)
        try:
            ticket = connection.session.subscribe(stream.topic)
            await connection.exchange(ticket, "subscribe", self._options.timeout)
        except BaseException:
            self._inbox.drop(stream.queue)
            raise

    async def _join(self, stream: Stream[Delivery]) -> None:
        """Connect a client that is used only as a member of a group."""
        self._inbox.add(stream.topic, stream.queue)
        await self.open()

    async def _finish_stream(self, stream: Stream[Delivery]) -> None:
        had = self._inbox.drop(stream.queue)
        connection = self._supervisor.connection
        if connection is None or not had or self._inbox.restored_by(resumed(stream.topic)):
            return
        try:
            ticket = connection.session.unsubscribe(stream.topic)
            await connection.exchange(ticket, "unsubscribe", self._options.timeout)
        except (Unsupported, Refused, ConnectionLost, TimedOut):
            return  # no queue is left for further deliveries


def _extras(
    headers: Headers,
    status: int | None,
    routing: Mapping[int, str] | None,
    *,
    packed: bool = False,
    dedupe: str | None = None,
) -> Extras:
    """Return the extras of a publish; raise BadOption for values of other types."""
    key: Any = dedupe
    if key is not None and not (isinstance(key, str) and key):
        raise BadOption("dedupe", f"is {dedupe!r}, not a key")
    if dedupe is not None and len(dedupe.encode()) > DEDUPE_KEY_BYTES_MAX:
        raise BadOption("dedupe", f"has more than {DEDUPE_KEY_BYTES_MAX} bytes")
    if dedupe is not None and routing is not None:
        raise BadOption("dedupe", "is for messages without routing")
    if status is not None and type(status) is not int:
        raise BadOption("status", f"is {status!r}, not a number")
    given: Any = routing
    if given is not None and not (
        isinstance(given, Mapping)
        and all(type(client) is int and isinstance(path, str) for client, path in given.items())
    ):
        raise BadOption("routing", f"is {routing!r}, not a mapping of client ids to paths")
    return Extras(header_pairs(headers), status, routing, packed=packed, dedupe=dedupe)
