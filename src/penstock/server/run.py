"""A broker process: started from a configuration, reloaded, stopped."""

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Final

import structlog

from penstock.errors import OperatorError
from penstock.gateway.options import GatewayOptions
from penstock.server.config import PROTOCOL_LIMITS, Config
from penstock.server.config_reload import reload
from penstock.server.credentials import Authenticator
from penstock.server.server import Server
from penstock.server.storages import open_storage
from penstock.transport.addresses import Address
from penstock.transport.stdio import Program

__all__ = ["Running", "serve"]

log = structlog.get_logger("penstock.run")


SWITCH_SECONDS: Final = 0.0005
"""How long the event loop may hold the interpreter lock while a thread of the storage waits."""


@dataclasses.dataclass(slots=True)
class Running:
    """A broker, its configuration, and the addresses it listens at, with their real ports."""

    config: Config
    server: Server
    authenticator: Authenticator
    addresses: tuple[Address, ...] = ()
    flight: Address | None = None
    http: Address | None = None
    """Address of the extra HTTP listener, where no WebSocket listener has it."""

    async def start(self) -> None:
        """Start all listeners and programs; raise OperatorError."""
        self.server.http.starting = True
        await self.server.start()
        for each in self.config.listener:
            address = each.address
            self.addresses += (await self.server.listen(address, options=self._options(address)),)
        await self._serve_http()
        await self._serve_flight()
        if self.config.program:
            await self.server.run_programs(_programs(self.config), options=self._options(None))
        self.server.http.starting = False

    async def _serve_http(self) -> None:
        """Listen for HTTP where no WebSocket listener does, if the configuration says so."""
        address = self.config.http.place
        if address is None or any(address.beside(each.address) for each in self.config.listener):
            return
        self.http = await self.server.listen(address, options=self._options(address))

    async def _serve_flight(self) -> None:
        """Listen for Flight, if the configuration says so."""
        address = self.config.flight.place
        if address is None:
            return
        options = self._options(address)
        self.flight = await self.server.listen_flight(
            address,
            data=Path(self.config.data.folder),
            anonymous=options.anonymous,
            verify=self.authenticator.verify_bearer if options.authenticator else None,
            stall_seconds_max=self.config.flight.stall_seconds_max,
        )

    async def stop(self) -> None:
        """Stop accepting, drain and close, within `limits.stop_seconds_max`."""
        await self.server.stop(seconds_max=self.config.limits.stop_seconds_max)
        self.authenticator.close()

    def reload(self, new: Config) -> None:
        """Apply the settings of a new configuration that need no restart; log the others.

        Clients whose principal was removed are disconnected.
        """
        reloaded, waiting = reload(self.config, new)
        self.config = reloaded.config
        gone = self.authenticator.update(reloaded.config)
        self.server.broker.hooks.rules_changed()
        broker = self.server.broker
        broker.settings = reloaded.config.broker_settings
        for session in broker.sessions:
            if session.principal.name in gone:
                session.link.close()
        log.info("reloaded", changed=list(reloaded.changed), needs_restart=waiting)

    def _options(self, address: Address | None) -> GatewayOptions:
        """Return the options of a listener; `address` is None for the broker's own programs."""
        limits = self.config.limits
        accepts = address is None or address.accepts_anonymous
        return GatewayOptions(
            anonymous=self.authenticator.anonymous if accepts else None,
            authenticator=self.authenticator if self.authenticator.principals else None,
            handshake_seconds_max=limits.handshake_seconds_max,
            messages_per_second_max=limits.messages_per_second_max or None,
            handshake_bytes_max=limits.handshake_bytes_max,
            frame_limits={name: getattr(limits, name) for name in PROTOCOL_LIMITS},
            herald_replay=self.config.herald_replay,
        )


async def serve(
    config: Config,
    *,
    announce: Callable[[Running], None] | None = None,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Run a broker until SIGINT or SIGTERM, then drain it; raise OperatorError if it cannot start.

    `announce` is called once, when every listener accepts clients. On SIGHUP `reread` returns the
    new configuration; if it raises OperatorError, the error is logged and nothing changes. A second
    SIGINT or SIGTERM ends the process without waiting for the drain.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    server = Server(
        settings=config.broker_settings,
        channels=config.channels,
        connections_max=config.limits.connections_max,
        storage=open_storage(config),
    )
    running = Running(config, server, Authenticator(config))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reread, running, reread)
    try:
        await running.start()
        if announce is not None:
            announce(running)
        await stopping.wait()
        log.info("stopping")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await running.stop()


def _reread(running: Running, reread: Callable[[], Config] | None) -> None:
    if reread is None:
        return
    try:
        new = reread()
    except OperatorError as error:
        log.warning("not reloaded", error=str(error), code=error.code)
        return
    running.reload(new)


def _programs(config: Config) -> list[Program]:
    return [
        Program(
            name=each.name or PurePath(each.command[0]).name,
            command=each.command,
            directory=each.folder,
            environment=each.env,
        )
        for each in config.program
    ]
