"""One connection: a session, its link, and who waits for which answer."""

import asyncio
from typing import Any, Protocol

from penstock.client.address import Address
from penstock.client.errors import ConnectFailed, ConnectionLost, PartlyRefused, Refused, TimedOut
from penstock.client.events import (
    Acknowledged,
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

__all__ = ["Asked", "Connection", "Waiter"]


class Asked(Protocol):
    """Who answers what is asked over a connection, and hears of errors nobody waits for."""

    def requested(self, connection: "Connection", request: Request) -> None:
        """Answer a request."""

    def hook_called(self, connection: "Connection", call: HookCall) -> None:
        """Answer a hook call."""

    def reported(self, error: Exception) -> None:
        """Take note of an error that no call waits for."""


class Waiter:
    """Who waits for the answers to one or more tickets, which follow one another."""

    __slots__ = ("_missing", "_refusals", "_result", "future", "tickets")

    def __init__(self, tickets: range) -> None:
        self.tickets = tickets
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.future.add_done_callback(_look_at_the_error)
        self._missing = len(tickets)
        self._refusals: list[tuple[int, Refused]] = []
        self._result: object = None

    def answered(self, result: object) -> None:
        """Take one answer; the last one's result is the result of all."""
        self._result = result
        self._one_less()

    def refused(self, ticket: int, error: Refused) -> None:
        """Take one refusal."""
        self._refusals.append((ticket - self.tickets.start, error))
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing or self.future.done():
            return
        if not self._refusals:
            self.future.set_result(self._result)
        elif len(self.tickets) == 1:
            self.future.set_exception(self._refusals[0][1])
        else:
            self.future.set_exception(PartlyRefused(tuple(self._refusals), len(self.tickets)))


def _look_at_the_error(future: "asyncio.Future[Any]") -> None:
    """Nobody may wait any more; then the error is known to whoever ended the connection."""
    if not future.cancelled():
        future.exception()


class Connection:
    """A `links.Receiver`. It lives from `open` until `lost_reason` is set."""

    def __init__(
        self, address: Address, session: Session, *, inbox: Inbox, asked: Asked, options: Options
    ) -> None:
        self.session = session
        self.lost_reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._address = address
        self._inbox = inbox
        self._asked = asked
        self._options = options
        self._ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(_look_at_the_error)
        self._waiting: dict[int, Waiter] = {}
        self._link: Link | None = None
        self._draining = 0
        self._paused = False
        self._fault = ""
        self._keepalive: asyncio.Task[None] | None = None

    # --- Begin and end ----------------------------------------------------------------------------

    async def open(self) -> Ready:
        """Connect and shake hands; raise ConnectFailed, Refused or TimedOut."""
        try:
            async with asyncio.timeout(self._options.timeout):
                self._link = await open_link(self._address, self, self._options.tls)
                ready = self.session.start()
                self.flush()
                if ready is None:
                    ready = await self._ready
        except TimeoutError:
            self.abort("no handshake in time")
            raise TimedOut("connect", self._options.timeout) from None
        except ConnectionLost as lost:
            raise ConnectFailed(str(self._address), lost.reason) from None
        except BaseException:
            self.abort("the handshake failed")
            raise
        if self.session.pings and self._options.keepalive is not None:
            self._keepalive = asyncio.create_task(self._keep_alive(self._options.keepalive))
        return ready

    async def close(self, seconds_max: float) -> None:
        """Say goodbye, send what is written and end; what is not sent in time is dropped."""
        if self._link is not None and not self.lost_reason.done():
            self._fault = self._fault or "the client was closed"
            self.session.goodbye()
            self.flush()
            self._link.resume()
            self._link.close()
            await asyncio.wait([self.lost_reason], timeout=seconds_max)
        self.abort("closed")

    def abort(self, reason: str) -> None:
        """End now."""
        self._fault = self._fault or reason
        if self._link is not None:
            self._link.abort()

    # --- Commands ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what the session has to send."""
        data = self.session.data_to_send()
        if data and self._link is not None:
            self._link.write(data)

    async def drain(self) -> None:
        """Wait until little enough is unsent.

        A broker may take nothing from a client that takes nothing from it: so this one reads on.
        """
        if self._link is not None:
            self._draining += 1
            try:
                self.relieved()
                await self._link.drain()
            finally:
                self._draining -= 1

    def expect(self, tickets: range) -> Waiter | None:
        """Send what was commanded; return who waits for the answers, None if there are none.

        Raise ConnectionLost if it is too late to send anything.
        """
        if self.lost_reason.done():
            raise ConnectionLost(self.lost_reason.result())
        waiter = None
        if tickets:
            waiter = Waiter(tickets)
            self._waiting.update(dict.fromkeys(tickets, waiter))
        self.flush()
        self.relieved()
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
                for ticket in waiter.tickets:
                    if self._waiting.pop(ticket, None) is not None:
                        self.session.forget(ticket)

    async def exchange(self, ticket: int, operation: str, seconds_max: float) -> Any:  # noqa: ANN401
        """Send what was commanded and return its answer; raises as `wait` does."""
        waiter = self.expect(range(ticket, ticket + 1))
        if waiter is None:
            raise AssertionError("one ticket, one waiter")
        return await self.wait(waiter, operation, seconds_max)

    # --- links.Receiver ---------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """See links.Receiver."""
        self.session.feed(data)
        if not self._paused:
            self._pump()

    def lost(self, reason: str) -> None:
        """See links.Receiver."""
        if self.lost_reason.done():
            return
        if self._paused:
            self._paused = False
            self._pump(regardless=True)  # what was read already is not lost with the connection
        reason = self._fault or reason
        self.lost_reason.set_result(reason)
        if self._keepalive is not None:
            self._keepalive.cancel()
        if not self._ready.done():
            self._ready.set_exception(ConnectionLost(reason))
        waiting, self._waiting = self._waiting, {}
        for waiter in set(waiting.values()):
            if not waiter.future.done():
                waiter.future.set_exception(ConnectionLost(reason))

    # --- Flow -------------------------------------------------------------------------------------

    def relieved(self) -> None:
        """Go on reading if there is room again, or an answer is awaited now."""
        if self._paused and not self._congested():
            self._paused = False
            self._pump()
            if not self._paused and self._link is not None:
                self._link.resume()

    def _congested(self) -> bool:
        return self._inbox.congested(awaiting=bool(self._waiting or self._draining))

    def _pump(self, *, regardless: bool = False) -> None:
        """Do what has come, as far as there is room for it, or regardless of that."""
        inbox = self._inbox
        try:
            for event in self.session.events():
                if type(event) is Delivered:
                    inbox.deliver(event.delivery)
                else:
                    self._take(event)
                if not regardless and self._congested():
                    self._paused = True
                    if self._link is not None:
                        self._link.pause()
                    break
        except WireError as error:
            self.abort(f"the broker broke the protocol: {error}")
        self.flush()

    def _take(self, event: Event) -> None:
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
            case Requested(request):
                self._asked.requested(self, request)
            case Notified(notification):
                self._inbox.notify(notification)
            case HookCalled(call):
                self._asked.hook_called(self, call)
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
            self._asked.reported(error)

    async def _keep_alive(self, seconds: float) -> None:
        """Find out that the other side is gone though the connection is not."""
        while True:
            await asyncio.sleep(seconds)
            if self._paused:
                # The answer could not be read now, but the broker shall hear that we live.
                self.session.ping()
                self.flush()
                continue
            try:
                await self.exchange(self.session.ping(), "ping", 2 * seconds)
            except TimedOut:
                if not self._paused:
                    self.abort("no answer to keep-alive")
                    return
            except ConnectionLost:
                return
