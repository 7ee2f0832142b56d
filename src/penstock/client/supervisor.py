"""The connection of a client, made again whenever it is lost."""

import asyncio
import random
from collections.abc import Callable

from penstock.client.address import Address
from penstock.client.connection import Connection, Waiter
from penstock.client.errors import (
    BadOption,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    Refused,
    TimedOut,
)
from penstock.client.handlers import Handlers
from penstock.client.inbox import Inbox
from penstock.client.options import ClientEvent, ErrorReported, Options, State, StateChanged
from penstock.client.sessions import Session
from penstock.client.state import may_move
from penstock.client.topics import without_replay

__all__ = ["Supervisor"]


class Supervisor:
    """Owns the state of a client, its connection and what is restored with each new one."""

    def __init__(
        self, address: Address, new_session: Callable[[], Session], options: Options
    ) -> None:
        self.state = State.NEW
        self.identity: int | None = None
        self.connection: Connection | None = None
        self.inbox = Inbox(self._relieved)
        self.handlers = Handlers(requests_max=options.requests_max, report=self.report)
        self._address = address
        self._new_session = new_session
        self._options = options
        self._watch: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()  # connected or closed
        self._end: Exception | None = None

    # --- Begin and end ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; raise ConnectFailed, Refused or TimedOut, and then all is closed."""
        self._move(State.CONNECTING)
        try:
            connection = await self._establish()
        except BaseException as error:
            self._finish(error if isinstance(error, Exception) else None)
            raise
        self._watch = asyncio.create_task(self._supervise(connection))

    async def close(self, seconds_max: float) -> None:
        """Say goodbye and end; what is not sent in time is dropped."""
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
        """Return the connection, once there is one; raise what ended the client, or TimedOut."""
        if self.state is State.NEW:
            raise ClientClosed
        if self.connection is not None and self.connection.lost_reason.done():
            self._settled.clear()  # whoever watches it has not come round to that yet
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

    async def _establish(self) -> Connection:
        """Connect and restore; raise ConnectFailed, Refused, ConnectionLost or TimedOut."""
        connection = Connection(
            self._address,
            self._new_session(),
            inbox=self.inbox,
            asked=self.handlers,
            options=self._options,
        )
        ready = await connection.open()
        self.connection = connection  # it needs to hear of room in the queues from now on
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
        """Subscribe and register again; what is refused now ends its iterators with the refusal.

        History is not asked for again: a replay would repeat what was given.
        """
        asked: list[tuple[str | None, Waiter | None]] = []
        for pattern in self.inbox.patterns():
            ticket = connection.session.subscribe(without_replay(pattern))
            asked.append((pattern, connection.expect(range(ticket, ticket + 1))))
        for hook in self.handlers.hooks():
            ticket = connection.session.register(hook)
            asked.append((None, connection.expect(range(ticket, ticket + 1))))
        for name, waiter in asked:
            if waiter is None:
                continue
            try:
                await connection.wait(waiter, "restore", self._options.timeout)
            except Refused as refused:
                self.report(refused)
                for queue in self.inbox.of(name) if name is not None else ():
                    queue.end(refused)
                    self.inbox.drop(queue)

    async def _supervise(self, connection: Connection) -> None:
        """Make the connection again whenever it is lost, until that is given up."""
        loop = asyncio.get_running_loop()
        backoff = self._options.backoff
        attempt = 0
        while True:
            since = loop.time()
            reason = await asyncio.shield(connection.lost_reason)
            if not self._options.reconnect:
                self._finish(ConnectionLost(reason), reason)
                return
            self._settled.clear()
            self.connection = None
            self._move(State.RECONNECTING, reason)
            if loop.time() - since >= backoff.seconds_max:
                attempt = 0  # it had lasted; one that ends at once is no reason to hurry
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

    def _relieved(self) -> None:
        if self.connection is not None:
            self.connection.relieved()

    # --- States and events ------------------------------------------------------------------------

    def report(self, error: Exception) -> None:
        """Tell the observer of an error that no call waits for."""
        self._tell(ErrorReported(error))

    def _finish(self, error: Exception | None, reason: str = "") -> None:
        """Let nothing more begin; iterators end, with `error` if there is one."""
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
        self._tell(StateChanged(state, reason))

    def _tell(self, event: ClientEvent) -> None:
        """Call later, so that what an observer raises is the event loop's to handle."""
        if self._options.on_event is not None:
            asyncio.get_running_loop().call_soon(self._options.on_event, event)


def _is_final(failure: Exception | None) -> bool:
    return isinstance(failure, Refused) and not failure.retriable
