"""The synchronous client: the same calls, each of which blocks until it has its result.

Each client runs an event loop in a thread of its own.
"""

import asyncio
import concurrent.futures
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from penstock.client.client import Client, connect
from penstock.client.consumer import Consumer, GroupMessage
from penstock.client.errors import ClientClosed
from penstock.client.options import ConnectOptions, State
from penstock.client.registrations import Middleware, NamedService, Service
from penstock.client.streams import Stream
from penstock.client.topics import Topic
from penstock.client.values import Delivery, Headers, HookCall, Notification, Reply, Request
from penstock.closeable import Closeable
from penstock.middleware import Condition, HookStrategy, HookType
from penstock.protocols import Protocol

__all__ = ["SyncClient", "SyncConsumer", "SyncGroupMessage", "SyncStream", "connect_sync"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def connect_sync(url: str | Sequence[str], **options: Unpack[ConnectOptions]) -> "SyncClient":
    """Return a client for the broker at `url`; `with` connects it. See `connect`.

    Handlers run in threads, `on_event` in the thread of the event loop.
    """
    return SyncClient(connect(url, **options))


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock-client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run `work` in the loop and return its result; an interrupt cancels it."""
        if self._loop.is_closed():
            work.close()
            raise ClientClosed
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClientClosed from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """Stop the loop and join its thread."""
        if self._loop.is_closed():
            return
        self.run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_tasks(self) -> None:
        """Cancel all tasks, so that no thread waits for a stopped loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_default_executor()


class SyncClient(Closeable):
    """A client of one broker, created by `connect_sync`. `Client` documents each call.

    It may be used from any thread.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._running: _Loop | None = None

    # --- Begin and end ----------------------------------------------------------------------------

    def open(self) -> None:
        """Connect."""
        if self._running is not None or self._client.state is not State.NEW:
            raise ClientClosed
        self._running = _Loop()
        try:
            self._running.run(self._client.open())
        except BaseException:
            self._running.stop()
            raise

    def close(self) -> None:
        """Close the connection and stop the event loop."""
        if self._running is not None and self._client.state is not State.NEW:
            try:
                self._running.run(self._client.close())
            except ClientClosed:
                return
            self._running.stop()

    def __enter__(self) -> Self:
        self.open()
        return self

    @property
    def protocol(self) -> Protocol:
        """Protocol of the connection."""
        return self._client.protocol

    @property
    def state(self) -> State:
        """State of the client."""
        return self._client.state

    @property
    def identity(self) -> int | None:
        """Client id assigned by the broker, if any."""
        return self._client.identity

    @property
    def _loop(self) -> _Loop:
        if self._running is None:
            raise ClientClosed
        return self._running

    # --- Publish and subscribe --------------------------------------------------------------------

    def publish(
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
        """See Client."""
        return self._loop.run(
            self._client.publish(
                topic,
                value,
                payload=payload,
                headers=headers,
                status=status,
                routing=routing,
                dedupe=dedupe,
            )
        )

    def publish_many(
        self,
        topic: Topic,
        values: Iterable[bytes],
        *,
        headers: Headers = (),
        status: int | None = None,
    ) -> int:
        """See Client; all of `values` is consumed before the first is sent."""
        return self._loop.run(
            self._client.publish_many(topic, list(values), headers=headers, status=status)
        )

    def subscribe(
        self,
        topic: Topic,
        *,
        resume: bool = True,
        queue_max: int | None = None,
        timeout: float | None = None,
    ) -> "SyncStream[Delivery]":
        """Subscribe to a topic and return an iterator over its messages.

        The iterator raises TimedOut if no message arrives for `timeout` seconds.
        """

        async def begin() -> Stream[Delivery]:
            return await self._client.subscribe(topic, resume=resume, queue_max=queue_max)

        return SyncStream(self._loop.run(begin()), self._loop.run, timeout)

    def consume(
        self,
        topic: Topic,
        *,
        group: str,
        start: str | None = None,
        is_ordered: bool = False,
        queue_max: int | None = None,
        timeout: float | None = None,
    ) -> "SyncConsumer":
        """Join a consumer group and return an iterator over its messages; see Client.

        The iterator raises TimedOut if no message arrives for `timeout` seconds.
        """

        async def begin() -> Consumer:
            consumer = self._client.consume(
                topic, group=group, start=start, is_ordered=is_ordered, queue_max=queue_max
            )
            await consumer.open()
            return consumer

        return SyncConsumer(self._loop.run(begin()), self._loop.run, timeout)

    def unsubscribe(self, topic: Topic) -> None:
        """See Client."""
        self._loop.run(self._client.unsubscribe(topic))

    def create_topic(self, topic: Topic) -> None:
        """See Client."""
        self._loop.run(self._client.create_topic(topic))

    def ping(self) -> float:
        """See Client."""
        return self._loop.run(self._client.ping())

    # --- Requests and notifications between clients (fleximq) -------------------------------------

    def request(
        self, target: int, path: str, payload: object = None, *, timeout: float | None = None
    ) -> Reply:
        """See Client."""
        return self._loop.run(self._client.request(target, path, payload, timeout=timeout))

    def serve(self, path: str, handler: Callable[[Request], Any]) -> Service:
        """See Client; `handler` is a plain function and runs in a thread."""

        async def answer(request: Request) -> Any:  # noqa: ANN401
            return await asyncio.to_thread(handler, request)

        return self._client.serve(path, answer)

    def register_service(
        self,
        path: str,
        handler: Callable[[Request], Any],
        *,
        topic: Topic | None = None,
        group: str | None = None,
        reply_topic: Topic | None = None,
    ) -> "SyncNamedService":
        """See Client; `handler` is a plain function and runs in a thread."""

        async def answer(request: Request) -> Any:  # noqa: ANN401
            return await asyncio.to_thread(handler, request)

        work = self._client.register_service(
            path, answer, topic=topic, group=group, reply_topic=reply_topic
        )
        return SyncNamedService(self._loop.run(work), self._loop.run)

    def request_service(
        self,
        path: str,
        payload: object = None,
        *,
        timeout: float | None = None,
        topic: Topic | None = None,
        reply_topic: Topic | None = None,
        reply_name: str | None = None,
    ) -> Reply:
        """See Client."""
        return self._loop.run(
            self._client.request_service(
                path,
                payload,
                timeout=timeout,
                topic=topic,
                reply_topic=reply_topic,
                reply_name=reply_name,
            )
        )

    def notify(
        self, targets: Mapping[int, str], payload: object = None, *, status: int | None = None
    ) -> None:
        """See Client."""
        self._loop.run(self._client.notify(targets, payload, status=status))

    def broadcast(self, payload: object = None, *, status: int | None = None) -> None:
        """See Client."""
        self._loop.run(self._client.broadcast(payload, status=status))

    def notifications(
        self, *, queue_max: int | None = None, timeout: float | None = None
    ) -> "SyncStream[Notification]":
        """Return an iterator over notifications and broadcasts; see `subscribe`."""

        async def begin() -> Stream[Notification]:
            return await self._client.notifications(queue_max=queue_max)

        return SyncStream(self._loop.run(begin()), self._loop.run, timeout)

    # --- Middleware (LamaMQ) ----------------------------------------------------------------------

    def middleware(
        self,
        name: str,
        handler: Callable[[HookCall], str | None],
        hook_type: HookType = HookType.MESSAGE_PUSHED,
        *,
        priority: int = 0,
        timeout_ms: int = 1000,
        strategy: HookStrategy = HookStrategy.WAIT_OR_REFUSE,
        conditions: Sequence[Condition] = (),
    ) -> "SyncMiddleware":
        """See Client; `handler` is a plain function and runs in a thread."""

        async def answer(call: HookCall) -> str | None:
            return await asyncio.to_thread(handler, call)

        work = self._client.middleware(
            name,
            answer,
            hook_type,
            priority=priority,
            timeout_ms=timeout_ms,
            strategy=strategy,
            conditions=conditions,
        )
        return SyncMiddleware(self._loop.run(work), self._loop.run)


class SyncStream(Closeable, Generic[Item]):
    """An iterator over the items of one subscription. It calls into the loop once per batch."""

    def __init__(
        self,
        stream: Stream[Item],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        timeout: float | None,
    ) -> None:
        self._stream = stream
        self._run = run
        self._timeout = timeout
        self._buffered: deque[Item] = deque()

    @property
    def topic(self) -> str:
        """Subscribed topic or pattern."""
        return self._stream.topic

    def get(self, timeout: float | None = None) -> Item:
        """Return the next item; raise TimedOut after `timeout` seconds, ClientClosed at the end."""
        if not self._buffered:
            self._buffered.extend(self._run(self._stream.take(timeout)))
        return self._buffered.popleft()

    def take(self, timeout: float | None = None) -> list[Item]:
        """Return all queued items, at least one; raises as `get` does."""
        if not self._buffered:
            taken: list[Item] = self._run(self._stream.take(timeout))
            return taken
        waiting = list(self._buffered)
        self._buffered.clear()
        return waiting

    def close(self) -> None:
        """End the stream; unsubscribe if the protocol supports it."""
        self._buffered.clear()
        self._run(self._stream.close())

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        try:
            return self.get(self._timeout)
        except ClientClosed:
            raise StopIteration from None


class SyncGroupMessage:
    """A message of a group; see GroupMessage."""

    __slots__ = ("_run", "message")

    def __init__(
        self, message: GroupMessage, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self.message = message
        """The same message of the consumer with asyncio."""
        self._run = run

    @property
    def delivery(self) -> Delivery:
        """All fields of the message."""
        return self.message.delivery

    @property
    def topic(self) -> str | None:
        """Topic of the message."""
        return self.message.topic

    @property
    def value(self) -> bytes:
        """Bytes of the payload."""
        return self.message.value

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """Decoded payload of a fleximq message; `value` in other protocols."""
        return self.message.payload

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Headers of the message (LamaMQ)."""
        return self.message.headers

    @property
    def sender(self) -> bytes | int | None:
        """Sender of the message; see Delivery."""
        return self.message.sender

    @property
    def offset(self) -> int | None:
        """Offset in its partition of the log; None if the broker does not send it."""
        return self.message.offset

    @property
    def partition(self) -> int | None:
        """Partition of the log; None if the broker does not send it."""
        return self.message.partition

    @property
    def message_id(self) -> uuid.UUID | None:
        """Id of the message, the same in each delivery; None if the broker does not send it."""
        return self.message.message_id

    @property
    def broker_time_us(self) -> int | None:
        """When the broker received the message: microseconds since the epoch, or None."""
        return self.message.broker_time_us

    def ack(self) -> bool:
        """See GroupMessage."""
        acknowledged: bool = self._run(self.message.ack())
        return acknowledged

    def nack(self, reason: str = "") -> bool:
        """See GroupMessage."""
        refused: bool = self._run(self.message.nack(reason))
        return refused


class SyncConsumer(Closeable):
    """A member of a group: an iterator over its messages. `with` leaves the group at its end."""

    def __init__(
        self,
        consumer: Consumer,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        timeout: float | None,
    ) -> None:
        self._consumer = consumer
        self._run = run
        self._timeout = timeout

    def get(self, timeout: float | None = None) -> SyncGroupMessage:
        """Return the next message; raise TimedOut after `timeout` seconds, ClientClosed."""
        return SyncGroupMessage(self._run(self._consumer.get(timeout)), self._run)

    def take(self, timeout: float | None = None) -> list[SyncGroupMessage]:
        """Return all messages that have arrived, at least one; raises as `get` does."""
        return [
            SyncGroupMessage(each, self._run) for each in self._run(self._consumer.take(timeout))
        ]

    def ack(self, messages: Iterable[SyncGroupMessage]) -> bool:
        """Acknowledge messages in one write; see GroupMessage."""
        acknowledged: bool = self._run(self._consumer.ack([each.message for each in messages]))
        return acknowledged

    def nack(self, messages: Iterable[SyncGroupMessage], reason: str = "") -> bool:
        """Refuse messages in one write; see GroupMessage."""
        given = [each.message for each in messages]
        refused: bool = self._run(self._consumer.nack(given, reason))
        return refused

    def close(self) -> None:
        """Leave the group."""
        self._run(self._consumer.close())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._consumer.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[SyncGroupMessage]:
        return self

    def __next__(self) -> SyncGroupMessage:
        try:
            return self.get(self._timeout)
        except ClientClosed:
            raise StopIteration from None


class SyncMiddleware(Closeable):
    """A registered middleware; `close` or the end of its `with` block unregisters it."""

    def __init__(
        self, middleware: Middleware, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._middleware = middleware
        self._run = run

    def close(self) -> None:
        """Unregister the middleware."""
        self._run(self._middleware.close())


class SyncNamedService(Closeable):
    """A service that is registered by name; `close` or the end of its `with` block ends it."""

    def __init__(
        self, service: NamedService, run: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._service = service
        self._run = run

    @property
    def path(self) -> str:
        """Path of the service."""
        return self._service.path

    def close(self) -> None:
        """End the service."""
        self._run(self._service.close())
