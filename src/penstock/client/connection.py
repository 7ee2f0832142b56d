"""One connection: a session, its link, and the calls that wait for answers."""

import asyncio
import contextlib
from typing import Any, Final, Protocol

from penstock.client.address import Address
from penstock.client.errors import (
    ConnectFailed,
    ConnectionLost,
    NotResumed,
    PartlyRefused,
    Refused,
    TimedOut,
)
from penstock.client.events import (
    Acknowledged,
    Anchored,
    Delivered,
    Ended,
    Event,
    Failed,
    HookCalled,
    Notified,
    Ready,
    Replied,
    Requested,
)
from penstock.client.inbox import Inbox
from penstock.client.links import Link, open_link
from penstock.client.options import Options
from penstock.client.sessions import Session
from penstock.client.values import HookCall, Request
from penstock.errors import WireError

__all__ = ["Connection", "Responder", "Waiter"]

ANCHOR_SECONDS: Final = 60.0
"""Time after which the client asks for the position of subscriptions without new messages."""


class Responder(Protocol):
    """Answers requests and hook calls from the broker, and receives errors without a waiter."""

    def requested(self, connection: "Connection", request: Request) -> None:
        """Answer a request."""

    def hook_called(self, connection: "Connection", call: HookCall) -> None:
        """Answer a hook call."""

    def reported(self, error: Exception) -> None:
        """Receive an error that no call waits for."""


class Waiter:
    """The pending answers to one or more consecutive tickets."""

    __slots__ = ("_missing", "_refusals", "_result", "future", "tickets")

    def __init__(self, tickets: range) -> None:
        self.tickets = tickets
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.future.add_done_callback(_retrieve_exception)
        self._missing = len(tickets)
        self._refusals: list[tuple[int, Refused]] = []
        self._result: object = None

    def answered(self, result: object) -> None:
        """Record one answer. The last result becomes the result of the future."""
        self._result = result
        self._count_answer()

    def refused(self, ticket: int, error: Refused) -> None:
        """Record one refusal."""
        self._refusals.append((ticket - self.tickets.start, error))
        self._count_answer()

    def _count_answer(self) -> None:
        self._missing -= 1
        if self._missing or self.future.done():
            return
        if not self._refusals:
            self.future.set_result(self._result)
        elif len(self.tickets) == 1:
            self.future.set_exception(self._refusals[0][1])
        else:
            self.future.set_exception(PartlyRefused(tuple(self._refusals), len(self.tickets)))


def _retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception, so that asyncio does not report it if no call waits any more."""
    if not future.cancelled():
        future.exception()


class Connection:
    """A `links.Receiver`; in use from `open` until `lost_reason` is set."""

    def __init__(
        self,
        address: Address,
        session: Session,
        *,
        inbox: Inbox,
        responder: Responder,
        options: Options,
    ) -> None:
        self.session = session
        self.lost_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._address = address
        self._inbox = inbox
        self._responder = responder
        self._options = options
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_retrieve_exception)
        self._waiting: dict[int, Waiter] = {}
        self._link: Link | None = None
        self._draining = 0
        self._paused = False
        self._fault = ""
        self._upkeep: list[asyncio.Task[None]] = []
        self._unanswered = 0  # commands that have no answer, sent since the last answered ping
        self._reads = 0

    # --- Open and close ---------------------------------------------------------------------------

    async def open(self, seconds_max: float) -> Ready:
        """Connect and do the handshake; raise ConnectFailed, Refused or TimedOut."""
        try:
            async with asyncio.timeout(seconds_max):
                self._link = await open_link(self._address, self, self._options.tls)
                ready = self.session.start()
                self.flush()
                if ready is None:
                    ready = await self._ready
        except TimeoutError:
            self.abort("no handshake in time")
            raise TimedOut("connect", seconds_max) from None
        except ConnectionLost as lost:
            raise ConnectFailed(str(self._address), lost.reason) from None
        except BaseException:
            self.abort("the handshake failed")
            raise
        if self._options.keepalive is not None:
            self._upkeep.append(asyncio.create_task(self._keep_alive(self._options.keepalive)))
        self._upkeep.append(asyncio.create_task(self._move_quiet(ANCHOR_SECONDS)))
        return ready

    async def close(self, seconds_max: float) -> None:
        """Send the goodbye and all written data, then close; drop data not sent in time."""
        if self._link is not None and not self.lost_reason.done():
            self._fault = self._fault or "the client was closed"
            self.session.goodbye()
            self.flush()
            self._link.resume()
            self._link.close()
            await asyncio.wait([self.lost_reason], timeout=seconds_max)
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """Close the connection without sending pending data."""
        self._fault = self._fault or reason
        if self._link is not None:
            self._link.abort()

    # --- Commands ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the pending data of the session."""
        data = self.session.data_to_send()
        if data and self._link is not None:
            self._link.write(data)

    async def drain(self) -> None:
        """Wait until the write buffer is below its limit.

        Keep reading meanwhile: a broker may stop reading from a client that does not read.
        """
        if self._link is not None:
            self._draining += 1
            try:
                self.resume_reading()
                await self._link.drain()
            finally:
                self._draining -= 1

    def expect(self, tickets: range) -> Waiter | None:
        """Send the session's commands; return the waiter for their answers, None without tickets.

        Raise ConnectionLost if the connection is lost already.
        """
        if self.lost_reason.done():
            raise ConnectionLost(self.lost_reason.result())
        waiter = None
        if not tickets:
            self._unanswered += 1
        else:
            waiter = Waiter(tickets)
            self._waiting.update(dict.fromkeys(tickets, waiter))
        self.flush()
        self.resume_reading()
        return waiter

    async def wait(self, waiter: Waiter, operation: str, seconds_max: float) -> Any:  # noqa: ANN401
        """Return the answer; raise Refused, PartlyRefused, ConnectionLost or TimedOut."""
        try:
            async with asyncio.timeout(seconds_max):
                return await waiter.future
        except TimeoutError:
            raise TimedOut(operation, seconds_max) from None
        finally:
            if not waiter.future.done() or waiter.future.cancelled():
                self._forget(waiter)

    async def exchange(self, ticket: int, operation: str, seconds_max: float) -> Any:  # noqa: ANN401
        """Send the command of `ticket` and return its answer; raises as `wait` does."""
        waiter = self.expect(range(ticket, ticket + 1))
        if waiter is None:
            raise AssertionError("one ticket, one waiter")
        return await self.wait(waiter, operation, seconds_max)

    def _forget(self, waiter: Waiter) -> None:
        for ticket in waiter.tickets:
            if self._waiting.pop(ticket, None) is not None:
                self.session.forget(ticket)

    # --- links.Receiver ---------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """See links.Receiver."""
        self._reads += 1
        self.session.feed(data)
        if not self._paused:
            self._pump()

    def lost(self, reason: str) -> None:
        """See links.Receiver."""
        if self.lost_reason.done():
            return
        if self._paused:
            self._paused = False
            self._pump(regardless=True)  # process data received before the loss
        reason = self._fault or reason
        self.lost_reason.set_result(reason)
        for task in self._upkeep:
            task.cancel()
        if not self._ready.done():
            self._ready.set_exception(ConnectionLost(reason))
        waiting, self._waiting = self._waiting, {}
        for waiter in set(waiting.values()):
            if not waiter.future.done():
                waiter.future.set_exception(ConnectionLost(reason))

    # --- Flow -------------------------------------------------------------------------------------

    def resume_reading(self) -> None:
        """Resume reading if the queues have room again, or an answer is awaited."""
        if self._paused and not self._congested():
            self._paused = False
            self._pump()
            if not self._paused and self._link is not None:
                self._link.resume()

    def _congested(self) -> bool:
        return self._inbox.congested(awaiting=bool(self._waiting or self._draining))

    def _pump(self, *, regardless: bool = False) -> None:
        """Process received events until the queues are full; all of them if `regardless`."""
        inbox = self._inbox
        try:
            for event in self.session.events():
                if type(event) is Delivered:
                    inbox.deliver(event.delivery)
                else:
                    self._handle(event)
                if not regardless and self._congested():
                    self._paused = True
                    if self._link is not None:
                        self._link.pause()
                    break
        except WireError as error:
            self.abort(f"the broker broke the protocol: {error}")
        self.flush()

    def _handle(self, event: Event) -> None:
        match event:
            case Acknowledged(ticket, message_id):
                waiter = self._waiting.pop(ticket, None)
                if waiter is not None:
                    waiter.answered(message_id)
            case Failed(ticket, error):
                self._failed(ticket, error)
            case Replied(ticket, reply):
                waiter = self._waiting.pop(ticket, None)
                if waiter is not None:
                    waiter.answered(reply)
            case Anchored(anchor):
                for pattern, reason in self._inbox.anchored(anchor):
                    self._responder.reported(NotResumed(pattern, reason))
            case Requested(request):
                self._responder.requested(self, request)
            case Notified(notification):
                self._inbox.notify(notification)
            case HookCalled(call):
                self._responder.hook_called(self, call)
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(event)
            case Ended():
                self._fault = self._fault or "the broker said goodbye"
                if self._link is not None:
                    self._link.close()
            case _:
                pass

    def _failed(self, ticket: int | None, error: Refused) -> None:
        waiter = self._waiting.pop(ticket, None) if ticket is not None else None
        if waiter is not None and ticket is not None:
            waiter.refused(ticket, error)
        elif ticket is None and not self._ready.done():
            self._ready.set_exception(error)
        else:
            self._responder.reported(error)

    # --- Upkeep -----------------------------------------------------------------------------------

    async def _keep_alive(self, seconds: float) -> None:
        """Ping the broker every `seconds`; abort the connection if no byte comes from the broker.

        The broker has `seconds` to answer. If commands are unanswered it has at least their
        time-out, since it may pause a publisher before it reads the ping.
        """
        while True:
            await asyncio.sleep(seconds)
            if self._paused:
                # The answer cannot be read now; the ping still shows the broker that we are alive.
                self.session.ping()
                self.flush()
                continue
            is_busy = bool(self._waiting or self._unanswered)
            seconds_max = max(seconds, self._options.timeout) if is_busy else seconds
            if not await self._is_answering(seconds_max):
                self.abort("no answer to keep-alive")
                return

    async def _is_answering(self, seconds_max: float) -> bool:
        """Send a ping; return whether the broker has sent anything since."""
        ticket = self.session.ping()
        waiter = self.expect(range(ticket, ticket + 1))
        if waiter is None:
            raise AssertionError("one ticket, one waiter")
        reads, unanswered = self._reads, self._unanswered
        for _ in range(2):
            # If the event loop was blocked, it reads bytes that have arrived in the second half.
            await asyncio.wait([waiter.future], timeout=seconds_max / 2)
        if waiter.future.done():
            self._unanswered -= unanswered
            return True
        self._forget(waiter)
        return self._paused or self._reads != reads

    async def _move_quiet(self, seconds: float) -> None:
        """Ask every `seconds` for the positions of quiet subscriptions, so that they resume there.

        The client subscribes again: the broker changes nothing, and answers with an anchor.
        """
        while True:
            await asyncio.sleep(seconds)
            for name in self._inbox.quiet_names():
                if self._paused or not self._inbox.is_in_effect(name):
                    continue
                ticket = self.session.subscribe(name)
                with contextlib.suppress(Refused, TimedOut, ConnectionLost):
                    await self.exchange(ticket, "subscribe", self._options.timeout)
