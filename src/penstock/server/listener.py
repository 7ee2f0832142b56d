"""Listeners: TCP, TLS, IPC, UDP, WebSocket and programs."""

import asyncio
import dataclasses
import ssl
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.core.access import ANYONE
from penstock.core.broker import Broker
from penstock.errors import BadAddress, BrokerFull, MemoryExhausted, PenstockError
from penstock.gateway.detector import handler_for
from penstock.gateway.fleximq import FleximqGateway
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    HTTP_HEALTH_CONNECTIONS,
    UDP_OUT_BUFFER_BYTES_MAX,
    UDP_SESSION_SECONDS_MAX,
    UDP_SESSIONS_MAX,
)
from penstock.memory import Account, Draw, Purpose
from penstock.ports import Handler, Link
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.herald import HERALD
from penstock.server.cannot_listen import cannot_listen
from penstock.server.connections import BaseListener, ConnectionLimit
from penstock.server.http.context import HttpContext
from penstock.server.http.health import answer_when_crowded
from penstock.server.http.service import HttpService
from penstock.transport.addresses import Address
from penstock.transport.ipc import SOCKET_MODE, ClaimedPath, claim_path, resolve_path
from penstock.transport.origin_policy import OriginPolicy
from penstock.transport.stdio import Program, Supervisor
from penstock.transport.stream import ReceiveBuffer, StreamConnection
from penstock.transport.tls import TlsSettings
from penstock.transport.tls_handshake import TlsHandshake
from penstock.transport.udp import DatagramEndpoint, DatagramSession
from penstock.transport.web_connection import HttpArrival, WebConnection
from penstock.transport.websocket import WebSocketEndpoint, WebSocketLink
from penstock.wire.fleximq.packets import frame_size

__all__ = [
    "DatagramListener",
    "Listener",
    "StdioListener",
    "StreamListener",
    "WebSocketListener",
    "new_listener",
    "options_for",
]

_ANY_PORT: Final = Address("tcp", "127.0.0.1", 0)


class Listener(Protocol):
    """Accepts clients at one address, or starts programs."""

    @property
    def url(self) -> str:
        """The address to show; once started, with the actual port for port 0."""

    @property
    def connections(self) -> int:
        """Number of open connections."""

    async def start(self) -> None:
        """Accept clients; raise an OperatorError if the address cannot be used."""

    @property
    def certificate_expires_at(self) -> float | None:
        """When its certificate expires, in seconds since the epoch; None without a certificate."""

    def reload_certificate(self) -> bool:
        """Read the certificate again, for new connections; raise CertificateUnusable.

        Return whether the authorities of client certificates changed.
        """

    def stop_accepting(self) -> None:
        """Accept no more clients."""

    async def close(self, *, seconds_max: float) -> None:
        """Close all connections; abort those that have unsent data after `seconds_max`."""


def options_for(address: Address, options: GatewayOptions | None = None) -> GatewayOptions:
    """Return the options of a listener: `options`, overridden by its address."""
    options = options or GatewayOptions()
    given: dict[str, object] = {}
    if address.protocol is not None:
        given["protocol"] = address.protocol
        given["order"] = address.order
    if address.echo is not None:
        given["echo"] = address.echo
    if address.strict is not None:
        given["strict"] = address.strict
    if address.anonymous is False:
        given["anonymous"] = None
    if not address.accepts_credentials:
        given["accepts_credentials"] = False
    return dataclasses.replace(options, **given)  # type: ignore[arg-type]


def new_listener(
    address: Address,
    broker: Broker,
    buffer: ReceiveBuffer,
    *,
    options: GatewayOptions | None = None,
    connection_limit: ConnectionLimit | None = None,
    context: HttpContext | None = None,
) -> "StreamListener | DatagramListener | WebSocketListener":
    """Return the listener that an address asks for; `context` is what HTTP handlers use.

    Raise CertificateUnusable, or BadAddress if TLS has no certificate.
    """
    options = options_for(address, options)
    match address.scheme:
        case "udp":
            return DatagramListener(
                broker, address, options=options, connection_limit=connection_limit
            )
        case "ws" | "wss":
            return WebSocketListener(
                broker,
                address,
                options=options,
                tls=_tls(address),
                connection_limit=connection_limit,
                context=context,
            )
        case _:
            return StreamListener(
                broker,
                buffer,
                address,
                options=options,
                tls=_tls(address),
                connection_limit=connection_limit,
            )


def _tls(address: Address) -> TlsSettings | None:
    if not address.is_secure:
        return None
    if address.certificate is None or address.key is None:
        raise BadAddress(str(address), f"{address.scheme}:// needs certificate and key")
    return TlsSettings(
        address.certificate,
        address.key,
        client_ca=address.client_ca,
        client_certificate=address.client_certificate or "required",
    )


class StreamListener(BaseListener):
    """A listening stream socket, TCP, TLS or IPC: a `transport.stream.ConnectionOwner`."""

    def __init__(
        self,
        broker: Broker,
        buffer: ReceiveBuffer,
        address: Address = _ANY_PORT,
        *,
        options: GatewayOptions | None = None,
        tls: TlsSettings | None = None,
        connection_limit: ConnectionLimit | None = None,
    ) -> None:
        super().__init__(broker, options, connection_limit, tls=tls)
        self.buffer = buffer
        self.address = address
        self._server: asyncio.Server | None = None
        self._claimed: ClaimedPath | None = None
        self._handshakes: dict[TlsHandshake, Account] = {}

    @property
    def url(self) -> str:
        """See Listener."""
        return self.address.location

    async def start(self) -> None:
        """See Listener."""
        if self.address.scheme == "ipc":
            await self._start_ipc()
            return
        host, port = await self.listen_tcp(
            self.address.host, self.address.port, tls=self.tls_context
        )
        self.address = dataclasses.replace(self.address, host=host, port=port)

    async def listen_tcp(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Start to listen; return host and port, with the actual port for port 0."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._new_connection if tls is None else lambda: self._new_handshake(tls),
                host,
                port,
                backlog=1024,
            )
        except OSError as error:
            raise cannot_listen(f"{'tls' if tls else 'tcp'}://{host}:{port}", error) from None
        name = self._server.sockets[0].getsockname()
        return name[0], name[1]

    def _new_connection(self) -> StreamConnection:
        return StreamConnection(self)

    def _new_handshake(self, tls: ssl.SSLContext) -> TlsHandshake:
        seconds_max = self._options.handshake_seconds_max
        return TlsHandshake(self, self._new_connection, tls, seconds_max=seconds_max)

    def handshake_begun(self, handshake: TlsHandshake) -> bool:
        """See transport.tls_handshake.TlsHandshakeOwner."""
        account = self.open_arrival(handshake) if self.acquire(handshake) else None
        if account is None:
            return False
        self._handshakes[handshake] = account
        return True

    def handshake_ended(self, handshake: TlsHandshake) -> None:
        """See transport.tls_handshake.TlsHandshakeOwner."""
        self._handshakes.pop(handshake).close()
        self.release(handshake)

    async def _start_ipc(self) -> None:
        path = resolve_path(self.address.path)
        mode = SOCKET_MODE if self.address.mode is None else self.address.mode
        self._claimed = await claim_path(path, mode=mode)
        self.address = dataclasses.replace(self.address, path=str(path))
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: StreamConnection(self), sock=self._claimed.socket
        )

    def stop_accepting(self) -> None:
        """See Listener: remove the socket file before the socket closes."""
        if self._claimed is not None:
            self._claimed.release()
        if self._server is not None:
            self._server.close()

    async def close(self, *, seconds_max: float) -> None:
        """See Listener."""
        self.stop_accepting()
        for handshake in list(self._handshakes):
            handshake.abort()
        await self.end_all(seconds_max)

    def opened(self, connection: StreamConnection) -> Handler:
        """See transport.stream.ConnectionOwner."""
        if not connection.peer:
            connection.peer = self.url
        return self.connected(connection)


class DatagramListener(BaseListener):
    """A bound UDP socket: a `transport.udp.DatagramOwner`."""

    def __init__(
        self,
        broker: Broker,
        address: Address,
        *,
        options: GatewayOptions | None = None,
        connection_limit: ConnectionLimit | None = None,
        session_seconds_max: float = UDP_SESSION_SECONDS_MAX,
        sessions_max: int = UDP_SESSIONS_MAX,
    ) -> None:
        super().__init__(broker, options, connection_limit)
        self.address = address
        self._session_seconds_max = session_seconds_max
        self._sessions_max = sessions_max
        self.endpoint: DatagramEndpoint | None = None
        self._out_buffer: Draw | None = None

    @property
    def url(self) -> str:
        """See Listener."""
        return self.address.location

    async def start(self) -> None:
        """See Listener."""
        self.endpoint = DatagramEndpoint(
            self, session_seconds_max=self._session_seconds_max, sessions_max=self._sessions_max
        )
        try:
            host, port = await self.endpoint.listen(self.address.host, self.address.port)
        except OSError as error:
            raise cannot_listen(self.url, error) from None
        self._out_buffer = self._broker.memory.draw(Purpose.OUTPUT, UDP_OUT_BUFFER_BYTES_MAX)
        self.address = dataclasses.replace(self.address, host=host, port=port)

    def stop_accepting(self) -> None:
        """See Listener."""
        if self.endpoint is not None:
            self.endpoint.stop_accepting()

    async def close(self, *, seconds_max: float) -> None:
        """See Listener: every session gets DISCONNECT."""
        if self.endpoint is not None:
            await self.endpoint.close(seconds_max=seconds_max)
            await self.emptied()
        if self._out_buffer is not None:
            self._out_buffer.release()

    def opened(self, session: DatagramSession) -> Handler:
        """See transport.udp.DatagramOwner."""
        options = dataclasses.replace(self._options, protocol=HERALD, order=session.order)
        return self.admit(session, lambda: handler_for(self._broker, session, options))

    def datagram_dropped(self, reason: str) -> None:
        """See transport.udp.DatagramOwner: not logged, since datagrams are easy to forge."""
        self._broker.counters.connections_failed[f"udp: {reason}"] += 1

    def frames_dropped(self, *, messages: int, too_large: int) -> None:
        """See transport.udp.DatagramOwner."""
        counters = self._broker.counters
        counters.messages_dropped[HERALD] += messages
        counters.messages_undeliverable[HERALD] += too_large


class WebSocketListener(BaseListener):
    """A listening socket for WebSockets and HTTP: a `transport.websocket.WebSocketOwner`.

    With an empty path in its address it serves HTTP only.
    """

    def __init__(
        self,
        broker: Broker,
        address: Address,
        *,
        options: GatewayOptions | None = None,
        tls: TlsSettings | None = None,
        connection_limit: ConnectionLimit | None = None,
        context: HttpContext | None = None,
    ) -> None:
        super().__init__(broker, options, connection_limit, tls=tls)
        self.address = address
        self.out_bytes_max = 2 * broker.settings.out_buffer_bytes_max
        self._context = context or HttpContext(broker)
        self._http = HttpService(self._context, self, address, self._options)
        self._entered: dict[WebConnection, Account] = {}
        self._health_checks: dict[WebConnection, None] = {}  # in the order of their arrival
        carries_fleximq = self._options.protocol is FLEXIMQ
        self._endpoint = WebSocketEndpoint(
            self,
            path=address.path,
            origins=OriginPolicy(address),
            frame_size=frame_size if carries_fleximq else None,
        )

    @property
    def url(self) -> str:
        """See Listener."""
        location = self.address.location
        return location if self.address.path else f"http{location.removeprefix('ws')}"

    async def start(self) -> None:
        """See Listener."""
        try:
            host, port = await self._endpoint.listen(
                self.address.host, self.address.port, tls=self.tls_context
            )
        except OSError as error:
            raise cannot_listen(self.url, error) from None
        self.address = dataclasses.replace(self.address, host=host, port=port)

    def stop_accepting(self) -> None:
        """See Listener."""
        self._endpoint.stop_accepting()

    async def close(self, *, seconds_max: float) -> None:
        """See Listener."""
        self.stop_accepting()
        await asyncio.gather(
            self._http.close(seconds_max=seconds_max),
            self._endpoint.close(seconds_max=seconds_max),
        )

    def opened(self, link: WebSocketLink) -> Handler:
        """See transport.websocket.WebSocketOwner."""
        return self.connected(link)

    def entered(self, connection: WebConnection) -> bool:
        """See transport.websocket.WebSocketOwner.

        Connections beyond the limit may ask for health. The oldest of them gives way to a new one.
        """
        account = self.open_arrival(connection) if self.acquire(connection) else None
        if account is not None:
            self._entered[connection] = account
            return True
        if len(self._health_checks) >= HTTP_HEALTH_CONNECTIONS:
            next(iter(self._health_checks)).abort()
        self._health_checks[connection] = None
        return False

    def left(self, connection: WebConnection) -> None:
        """See transport.websocket.WebSocketOwner."""
        self._health_checks.pop(connection, None)
        account = self._entered.pop(connection, None)
        if account is not None:
            account.close()
            self.release(connection)

    def health(self, request_line: bytes) -> bytes:
        """See transport.websocket.WebSocketOwner."""
        return answer_when_crowded(self._context, request_line)

    def http(self, arrival: HttpArrival) -> None:
        """See transport.websocket.WebSocketOwner."""
        self._http.take(arrival)


class StdioListener(BaseListener):
    """Programs that the broker starts: a `transport.stdio.ProgramOwner`.

    A program uses fleximq and has joined when it starts: its client id is in the environment
    (section 6.4). `new_handler` returns another handler and client id instead.
    """

    trusted = True

    def __init__(
        self,
        broker: Broker,
        programs: Sequence[Program],
        *,
        options: GatewayOptions | None = None,
        connection_limit: ConnectionLimit | None = None,
        new_handler: Callable[[Link, Program], tuple[Handler, int]] | None = None,
    ) -> None:
        super().__init__(broker, options, connection_limit)
        self._new_handler = new_handler or self._open_joined
        self._supervisors = [Supervisor(self, program) for program in programs]

    @property
    def url(self) -> str:
        """See Listener."""
        names = ",".join(supervisor.program.name for supervisor in self._supervisors)
        return f"stdio://{names}"

    async def start(self) -> None:
        """See Listener: a program that fails to start is restarted, like one that exits."""
        for supervisor in self._supervisors:
            supervisor.start()

    def stop_accepting(self) -> None:
        """See Listener: running programs continue, but are not restarted."""
        for supervisor in self._supervisors:
            supervisor.stop_restarting()

    async def close(self, *, seconds_max: float) -> None:
        """See Listener."""
        stops = [supervisor.stop(seconds_max=seconds_max) for supervisor in self._supervisors]
        await asyncio.gather(*stops)

    def kill(self) -> None:
        """Kill all programs; any thread may call this."""
        for supervisor in self._supervisors:
            supervisor.kill()

    def opened(self, link: Link, program: Program) -> tuple[Handler, int]:
        """See transport.stdio.ProgramOwner."""
        if self._connection_limit.full:
            raise BrokerFull(self._connection_limit.connections)
        opened: list[int] = []

        def new_handler() -> Handler:
            handler, client_id = self._new_handler(link, program)
            opened.append(client_id)
            return handler

        try:
            handler = self.admit(link, new_handler)
        except PenstockError:
            link.account.close()
            self.closed(link)
            raise
        if not opened:  # without memory there is no session
            raise MemoryExhausted("total")
        return handler, opened[0]

    def _open_joined(self, link: Link, program: Program) -> tuple[Handler, int]:  # noqa: ARG002
        gateway = FleximqGateway(self._broker, link, self._options, order="big")
        # Configured programs are trusted, also where anonymous clients are refused.
        session = gateway.open_program(self._options.anonymous or ANYONE)
        return gateway, session.number
