"""The connection of a client and its reconnects."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.address import Address
from penstock.client.connection import Connection, Waiter
from penstock.client.errors import (
    BadOption,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NotResumed,
    Refused,
    TimedOut,
)
from penstock.client.handlers import Handlers
from penstock.client.inbox import Inbox
from penstock.client.options import ClientEvent, ErrorReported, Options, State, StateChanged
from penstock.client.sessions import Session
from penstock.client.state import may_move
from penstock.client.subscription import Subscription, text_to_restore
from penstock.client.topics import is_in_group, resumed
from penstock.client.values import packed
from penstock.service_messages import BROKER, SERVE_PATH

__all__ = ["Supervisor"]

ATTEMPT_SECONDS_MAX: Final = 10.0
"""Time in which a client of several nodes tries to connect to one of them."""

NEW_NODE_US: Final = 10_000_000
"""How late the first messages of a new node may come. They can be older than the time at which a
subscription would resume at another node. So it resumes earlier by this time, and drops messages
that it has got before."""


class Supervisor:
    """Owns a client's state and connection; restores subscriptions, hooks and services."""

    def __init__(
        self, addresses: Sequence[Address], new_session: Callable[[], Session], options: Options
    ) -> None:
        self.state = State.NEW
        self.identity: int | None = None
        self.connection: Connection | None = None
        self.inbox = Inbox(self._resume_reading)
        self.handlers = Handlers(requests_max=options.requests_max, report=self.report)
        self._addresses = deque(addresses)  # the first is that of the connection, or the next one
        self._new_session = new_session
        self._options = options
        self._watch: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # connected or closed
        self._end: Exception | None = None

    # --- Open and close ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; on failure close the client and raise ConnectFailed, Refused or TimedOut.

        The error is a refusal if there was any, else that of the last address. Subscriptions that
        are in the inbox already, those of members of groups, take effect too: if the broker refuses
        one for the moment, try again until the time-out.
        """
        self._move(State.CONNECTING)
        try:
            connection = await self._establish_first()
        except BaseException as error:
            self._finish(error if isinstance(error, Exception) else None)
            raise
        self._watch = asyncio.create_task(self._supervise(connection))

    async def close(self, seconds_max: float) -> None:
        """Close the connection; drop data that is not sent within `seconds_max`."""
        self._finish(None)
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        await self.handlers.close()
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.close(seconds_max)

    async def connected(self, operation: str) -> Connection:
        """Wait for the connection; raise TimedOut, or the error that ended the client."""
        if self.state is State.NEW:
            raise ClientClosed
        if self.connection is not None and self.connection.lost_reason.done():
            self._settled.clear()  # `_supervise` has not seen the loss yet
        if not self._settled.is_set() and self.state is not State.CLOSED:
            try:
                async with asyncio.timeout(self._options.timeout):
                    await self._settled.wait()
            except TimeoutError:
                raise TimedOut(operation, self._options.timeout) from None
        if self.connection is None or self.state is State.CLOSED:
            raise self._end or ClientClosed()
        return self.connection

    # --- The connection ---------------------------------------------------------------------------

    async def _establish_first(self) -> Connection:
        """Connect to any address; if subscriptions get retriable refusals, try again."""
        loop = asyncio.get_running_loop()
        backoff = self._options.backoff
        deadline = loop.time() + self._options.timeout
        attempt = 0
        while True:
            try:
                return await self._establish_anywhere()
            except Refused as refused:
                seconds = backoff.seconds(attempt, random.random())  # noqa: S311
                if (
                    _is_final(refused)
                    or not any(self.inbox.subscriptions())
                    or not self._options.reconnect
                    or attempt == backoff.attempts_max
                    or loop.time() + seconds >= deadline
                ):
                    raise
                self.report(refused)
                await asyncio.sleep(seconds)
                attempt += 1

    async def _establish_anywhere(self) -> Connection:
        """Connect to the first address that accepts the client.

        Raise a refusal if there was any, else the error of the last address.
        """
        refused: Refused | None = None
        for left in reversed(range(len(self._addresses))):
            try:
                return await self._establish()
            except (ConnectFailed, ConnectionLost, Refused, TimedOut) as error:
                if _is_final(error):
                    raise
                self._addresses.rotate(-1)
                if isinstance(error, Refused):
                    refused = error
                if not left:
                    raise (refused or error) from None
        raise AssertionError("a client has an address")

    async def _establish(self) -> Connection:
        """Connect and restore; raise ConnectFailed, Refused, ConnectionLost or TimedOut."""
        session = self._new_session()
        self.inbox.connecting()
        session.restoring(map(self._text_to_restore, self.inbox.subscriptions()))
        connection = Connection(
            self._addresses[0],
            session,
            inbox=self.inbox,
            responder=self.handlers,
            options=self._options,
        )
        seconds_max = self._options.timeout
        if len(self._addresses) > 1:
            seconds_max = min(seconds_max, ATTEMPT_SECONDS_MAX)
        ready = await connection.open(seconds_max)
        self.connection = connection  # from now on `_resume_reading` must reach it
        try:
            await self._restore(connection)
        except BaseException:
            self.connection = None
            connection.abort("the subscriptions could not be restored")
            raise
        self.identity = ready.identity
        self._move(State.CONNECTED)
        self._settled.set()
        return connection

    async def _restore(self, connection: Connection) -> None:
        """Subscribe and register again. A refused subscription ends its iterators with the refusal.

        Subscriptions begin behind the last message that they have got, or go on with new messages
        if the broker cannot deliver earlier ones. Raise a refusal that is retriable, and any of a
        member of a group, which has no other use for its connection.
        """
        asked: list[tuple[str | None, Waiter | None]] = []
        for same in self.inbox.subscriptions():
            text = self._text_to_restore(same)
            ticket = connection.session.subscribe(text)
            waiter = connection.expect(range(ticket, ticket + 1))
            if text != resumed(text) and waiter is not None:
                waiter = await self._resumed(connection, waiter, same[0].name)
            asked.append((same[0].restored_by, waiter))
        for hook in self.handlers.hooks():
            ticket = connection.session.register(hook)
            asked.append((None, connection.expect(range(ticket, ticket + 1))))
        for path in self.handlers.named:
            ticket = connection.session.request(BROKER, SERVE_PATH, packed(path))
            asked.append((None, connection.expect(range(ticket, ticket + 1))))
        for restored, waiter in asked:
            if waiter is None:
                continue
            try:
                await connection.wait(waiter, "subscribe", self._options.timeout)
            except Refused as refused:
                if restored is not None and (refused.retriable or is_in_group(restored)):
                    raise
                self.report(refused)
                for queue in self.inbox.restored_by(restored) if restored is not None else ():
                    queue.end(refused)
                    self.inbox.drop(queue)

    def _text_to_restore(self, same: list[Subscription]) -> str:
        return text_to_restore(same, earlier_us=NEW_NODE_US if len(self._addresses) > 1 else 0)

    async def _resumed(self, connection: Connection, waiter: Waiter, name: str) -> Waiter | None:
        """Wait for a subscription with a start; if it is refused, subscribe without one."""
        try:
            await connection.wait(waiter, "subscribe", self._options.timeout)
        except Refused as refused:
            if refused.retriable:
                raise
            ticket = connection.session.subscribe(name)
            waiter = connection.expect(range(ticket, ticket + 1)) or waiter
            if self.inbox.has_history:
                self.report(NotResumed(name, refused.text))
            return waiter
        return None

    async def _supervise(self, connection: Connection) -> None:
        """Reconnect after each loss until an attempt fails for good or attempts run out."""
        loop = asyncio.get_running_loop()
        backoff = self._options.backoff
        attempt = 0
        while True:
            since = loop.time()
            reason = await asyncio.shield(connection.lost_reason)
            if not self._options.reconnect or self._addresses[0].scheme == "stdio":
                self._finish(ConnectionLost(reason), reason)
                return
            self._settled.clear()
            self.connection = None
            self._move(State.RECONNECTING, reason)
            self._addresses.rotate(-1)
            if loop.time() - since >= backoff.seconds_max:
                attempt = 0  # only a connection that lasted resets the back-off
            failure: Exception | None = None
            while True:
                if attempt == backoff.attempts_max or _is_final(failure):
                    self._finish(failure or ConnectionLost(reason), str(failure or reason))
                    return
                await asyncio.sleep(backoff.seconds(attempt, random.random()))  # noqa: S311
                attempt += 1
                try:
                    connection = await self._establish()
                    break
                except (ConnectFailed, ConnectionLost, Refused, TimedOut) as error:
                    failure = error
                    self._addresses.rotate(-1)
                    if isinstance(error, Refused) and not _is_final(error):
                        self.report(error)

    def _resume_reading(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()

    # --- States and events ------------------------------------------------------------------------

    def report(self, error: Exception) -> None:
        """Pass an error that no call waits for to the observer."""
        self._emit(ErrorReported(error))

    def _finish(self, error: Exception | None, reason: str = "") -> None:
        """Enter the closed state and end all iterators, with `error` if given."""
        if self.state is State.CLOSED:
            return
        self._end = error
        self._move(State.CLOSED, reason)
        self._settled.set()
        self.inbox.end(error)

    def _move(self, state: State, reason: str = "") -> None:
        if not may_move(self.state, state):
            if self.state is State.CLOSED:
                raise ClientClosed
            raise BadOption("client", f"is {self.state.name.lower()} already")
        self.state = state
        self._emit(StateChanged(state, reason))

    def _emit(self, event: ClientEvent) -> None:
        """Schedule the observer's call, so that its exceptions go to the event loop."""
        if self._options.on_event is not None:
            asyncio.get_running_loop().call_soon(self._options.on_event, event)


def _is_final(failure: Exception | None) -> bool:
    return isinstance(failure, Refused) and not failure.retriable
