"""The life of a broker process: made from a configuration, ready, reloaded, stopped."""

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import structlog

from penstock.errors import CannotKeep, OperatorError
from penstock.gateway.options import GatewayOptions
from penstock.server.config import PROTOCOL_LIMITS, Config
from penstock.server.config_reload import reload
from penstock.server.credentials import Authenticator
from penstock.server.server import Server
from penstock.transport.addresses import Address
from penstock.transport.stdio import Program

if TYPE_CHECKING:
    from penstock.storage.arrow.log import ArrowLog

__all__ = ["Running", "serve"]

log = structlog.get_logger("penstock.run")


SWITCH_SECONDS: Final = 0.0005
"""How long the event loop may keep the log's threads waiting for their turn in Python."""


@dataclasses.dataclass(slots=True)
class Running:
    """A broker, where it listens and what it goes by. `addresses` have the ports that it got."""

    config: Config
    server: Server
    authenticator: Authenticator
    addresses: tuple[Address, ...] = ()
    flight: Address | None = None
    http: Address | None = None
    """Where HTTP is answered beside the listeners that do so by themselves."""

    async def start(self) -> None:
        """Let clients in by all listeners, and start the programs; raise OperatorError."""
        self.server.view.starting = True
        await self.server.start()
        for each in self.config.listener:
            address = each.address
            self.addresses += (await self.server.listen(address, options=self._options(address)),)
        await self._serve_http()
        await self._serve_flight()
        if self.config.program:
            await self.server.run_programs(_programs(self.config), options=self._options(None))
        self.server.view.starting = False

    async def _serve_http(self) -> None:
        """Answer HTTP where no listener does, if that is asked for."""
        address = self.config.http.place
        if address is None or any(address.beside(each.address) for each in self.config.listener):
            return
        self.http = await self.server.listen(address, options=self._options(address))

    async def _serve_flight(self) -> None:
        """Serve tables, if that is asked for."""
        address = self.config.flight.place
        if address is None:
            return
        options = self._options(address)
        self.flight = await self.server.listen_flight(
            address,
            data=Path(self.config.data.folder),
            anonymous=options.anonymous,
            verify=self.authenticator.verify_bearer if options.authenticator else None,
        )

    async def stop(self) -> None:
        """Let nobody else in, send what is written, close; all within the time that is set."""
        await self.server.stop(seconds_max=self.config.limits.stop_seconds_max)
        self.authenticator.close()

    def reload(self, new: Config) -> None:
        """Go by another configuration as far as a running broker can, and log what cannot.

        Clients whose principal is gone are disconnected.
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
        """Return what an address does not say itself; None stands for the broker's own programs."""
        limits = self.config.limits
        welcome = address is None or address.anonymous or address.is_loopback
        return GatewayOptions(
            anonymous=self.authenticator.anonymous if welcome else None,
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

    `announce` is called once, when every listener takes clients. On SIGHUP `reread` brings the
    configuration to go on with; what it raises is logged, and the broker goes on as it was. A
    second SIGINT or SIGTERM ends the process without waiting for the drain.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    server = Server(
        settings=config.broker_settings,
        channels=config.channels,
        connections_max=config.limits.connections_max,
        log=_open_log(config),
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


def _open_log(config: Config) -> "ArrowLog | None":
    """Open the log and say what was found; raise OperatorError if that cannot be."""
    options = config.log_options
    if options is None:
        return None
    from penstock.storage.arrow.log import ArrowLog  # noqa: PLC0415  (a cost only a log pays)

    folder = Path(config.data.folder)
    try:
        opened = ArrowLog(folder, options)
    except (FileExistsError, NotADirectoryError) as error:
        raise CannotKeep(str(folder), "it is a file, or below one") from error
    except OSError as error:
        raise CannotKeep(str(folder), error.strerror or str(error)) from error
    for cut in opened.recovered.cuts:
        log.warning("torn tail cut off", **cut._asdict())
    for damage in opened.recovered.damage:
        log.error("part of the log cannot be read", **damage._asdict())
    return opened


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
