"""Consumers: members of a group, which share its messages and acknowledge them."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

from penstock.client.connection import Connection
from penstock.client.errors import ClientClosed, TimedOut
from penstock.client.streams import Stream
from penstock.client.values import Delivery
from penstock.closeable import AsyncCloseable

__all__ = ["Consumer", "GroupMessage"]

_LEAVE_SECONDS_MAX: Final = 2.0


class GroupMessage:
    """A message of a group. `delivery` has all its fields; the most used are here too."""

    __slots__ = ("_consumer", "delivery", "is_answered")

    def __init__(self, delivery: Delivery, consumer: "Consumer") -> None:
        self.delivery = delivery
        self._consumer = consumer
        self.is_answered = False
        """Whether `ack` or `nack` was called; the first call counts."""

    def __repr__(self) -> str:
        return f"<GroupMessage {self.delivery!r}>"

    @property
    def topic(self) -> str | None:
        """Topic of the message; see Delivery."""
        return self.delivery.topic

    @property
    def value(self) -> bytes:
        """Bytes of the payload."""
        return self.delivery.value

    @property
    def payload(self) -> Any:  # noqa: ANN401
        """Decoded payload of a fleximq message; `value` in other protocols."""
        return self.delivery.payload

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """Headers of the message (LamaMQ)."""
        return self.delivery.headers

    @property
    def sender(self) -> bytes | int | None:
        """Sender of the message; see Delivery."""
        return self.delivery.sender

    @property
    def offset(self) -> int | None:
        """Offset in its partition of the log; None if the broker does not send it."""
        return self.delivery.offset

    @property
    def partition(self) -> int | None:
        """Partition of the log; None if the broker does not send it."""
        return self.delivery.partition

    @property
    def message_id(self) -> uuid.UUID | None:
        """Id of the message, the same in each delivery; None if the broker does not send it."""
        return self.delivery.message_id

    @property
    def broker_time_us(self) -> int | None:
        """When the broker received the message: microseconds since the epoch, or None."""
        return self.delivery.broker_time_us

    async def ack(self) -> bool:
        """Tell the broker that the message was processed.

        Return False if the connection of the message is lost, and the broker delivers it again, or
        if `ack` or `nack` was called before. True means that the answer was sent. The broker
        ignores it if this member was late, and the message went to another one meanwhile.
        """
        return await self._consumer.ack((self,))

    async def nack(self, reason: str = "") -> bool:
        """Tell the broker that the message could not be processed; returns as `ack` does.

        The broker delivers it again, or to the dead letters with `reason` in the end. Raise
        Unsupported if the protocol has no such answer.
        """
        return await self._consumer.nack((self,), reason)


class Consumer(AsyncCloseable, AsyncIterator[GroupMessage]):
    """A member of a group, with a connection of its own. `async with` connects and joins.

    It joins again after a reconnect. When it ends, messages that it has not acknowledged go to
    other members. If an exception ends its `async with` block, the broker counts the first of these
    messages as failed, as after a crash of the program. `close` leaves the group without a failure.
    """

    def __init__(
        self,
        *,
        close_client: Callable[[], Any],
        connection: Callable[[], Connection | None],
        stream: Stream[Delivery],
    ) -> None:
        """Use `Client.consume` instead."""
        self._close_client = close_client
        self._connection = connection
        self._unopened = stream
        self._stream: Stream[Delivery] | None = None

    async def open(self) -> None:
        """Connect and join the group; raise ConnectFailed, Refused or TimedOut.

        If the broker refuses the member for the moment, as nodes do that are not the owner of the
        group, try again until the time-out, at all addresses of the client.
        """
        self._stream = await self._unopened

    async def close(self) -> None:
        """Leave the group and close the connection."""
        if self._stream is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS_MAX):
                    await self._stream.close()
        await self._close_client()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            await self._close_client()
        else:
            await self.close()

    # --- Messages ---------------------------------------------------------------------------------

    async def __anext__(self) -> GroupMessage:
        return GroupMessage(await self._joined.__anext__(), self)

    async def get(self, timeout: float | None = None) -> GroupMessage:
        """Return the next message; raise TimedOut after `timeout` seconds, ClientClosed."""
        try:
            async with asyncio.timeout(timeout):
                return await self.__anext__()
        except TimeoutError:
            raise TimedOut("get", timeout or 0) from None
        except StopAsyncIteration:
            raise ClientClosed from None

    async def take(self, timeout: float | None = None) -> list[GroupMessage]:
        """Return all messages that have arrived, at least one; raises as `get` does."""
        return [GroupMessage(each, self) for each in await self._joined.take(timeout)]

    @property
    def _joined(self) -> Stream[Delivery]:
        if self._stream is None:
            raise ClientClosed
        return self._stream

    # --- Acknowledgments --------------------------------------------------------------------------

    async def ack(self, messages: Iterable[GroupMessage]) -> bool:
        """Acknowledge messages in one write; see GroupMessage."""
        return await self._answer(messages, None)

    async def nack(self, messages: Iterable[GroupMessage], reason: str = "") -> bool:
        """Refuse messages in one write; see GroupMessage."""
        return await self._answer(messages, reason or "not processed")

    async def _answer(self, messages: Iterable[GroupMessage], failure: str | None) -> bool:
        connection = self._connection()
        if connection is None or connection.lost_reason.done():
            return False
        session = connection.session
        sent = []
        for each in messages:
            is_sent = not each.is_answered and session.answer_delivery(each.delivery, failure)
            each.is_answered |= is_sent
            sent.append(is_sent)
        connection.flush()
        await connection.drain()
        return all(sent) and not connection.lost_reason.done()
