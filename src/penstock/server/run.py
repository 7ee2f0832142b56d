"""A broker process: started from a configuration, reloaded, stopped."""

import asyncio
import dataclasses
import gc
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import structlog

import penstock
from penstock.core.access import Peer, Principal
from penstock.core.sessions import Session
from penstock.errors import AuthenticationFailed, OperatorError
from penstock.gateway.options import GatewayOptions
from penstock.limits import (
    INPUT_GROWTH_BYTES_MAX,
    MEMORY_BLOCK_BYTES,
    MEMORY_FIXED_SHARE,
    SESSIONS_MAX,
    VERIFICATIONS_MEMORY_SHARE,
)
from penstock.memory import Purpose
from penstock.ports import NO_AUDIT, AuditEvent
from penstock.server.audit_changes import record_changes
from penstock.server.audit_log import AuditLog
from penstock.server.config import PROTOCOL_LIMITS, Config
from penstock.server.config_reload import reload
from penstock.server.credentials import Authenticator, PreparedPrincipals
from penstock.server.descriptors import Descriptors, raise_descriptor_limit
from penstock.server.server import Server
from penstock.server.storages import open_session_numbers, open_storage, open_stored_counts
from penstock.server.tracing import start_tracing
from penstock.transport.addresses import Address
from penstock.transport.stdio import Program

if TYPE_CHECKING:
    from penstock.tracing.otlp import SpanSender

__all__ = ["Running", "serve"]

log = structlog.get_logger("penstock.run")


SWITCH_SECONDS: Final = 0.0005
"""How long the event loop may hold the interpreter lock while a thread of the storage waits."""


DRAIN_SHARE_OF_STOP: Final = 0.8
"""Part of `stop_seconds_max` for clients; the rest is for closing the log and ending threads."""
COLLECTOR_THRESHOLDS: Final = (2_000, 5, 20_000)
"""See `gc.set_threshold`. A collection takes about a microsecond for each object that it looks at,
and stops the event loop: so the first two look at 2,000 and 10,000. Closed connections leave no
cycles, so that a full collection may be rare."""


@dataclasses.dataclass(slots=True)
class Running:
    """A broker, its configuration, and the addresses it listens at, with their real ports."""

    config: Config
    server: Server
    authenticator: Authenticator
    addresses: tuple[Address, ...] = ()
    flight: Address | None = None
    audit: AuditLog | None = None
    spans: "SpanSender | None" = None
    """Sends the spans of traced messages; None if traces are off."""
    stopped: bool = False
    """Whether all connections are closed and the log is closed."""
    http: Address | None = None
    """Address of the extra HTTP listener, where no WebSocket listener has it."""
    drain_seconds: float | None = None
    """How long a stop may take, if the request for a drain says so."""

    @property
    def stop_seconds_max(self) -> float:
        """How long a stop may take, to the end of the process."""
        return self.drain_seconds or self.config.limits.stop_seconds_max

    async def start(self) -> None:
        """Start all listeners and programs; raise OperatorError."""
        self.server.http.starting = True
        self.server.http.quotas = self.authenticator.quotas
        self.authenticator.count_stored(self.server.broker.stored)
        self.server.broker.quota_of = self.authenticator.quota_of
        self._keep_memory_for_passwords()
        await self.server.start()
        self._apply_hooks()
        for each in self.config.listener:
            address = each.address
            self.addresses += (await self.server.listen(address, options=self._options(address)),)
        await self._serve_http()
        await self._serve_flight()
        if self.config.program:
            await self.server.run_programs(_programs(self.config), options=self._options(None))
        self.server.http.starting = False
        self.server.broker.audit.record(
            AuditEvent.STARTED,
            version=penstock.__version__,
            principals=len(self.config.principal),
            listeners=[address.location for address in self.addresses],
        )

    def _keep_memory_for_passwords(self) -> None:
        """Keep what verifications take, but not so much that clients get no memory."""
        memory = self.server.broker.memory
        most = min(
            int(memory.bytes_max * VERIFICATIONS_MEMORY_SHARE),
            (int(memory.bytes_max * MEMORY_FIXED_SHARE) - memory.reserved) // 2,
        )
        needed = self.authenticator.password_memory_bytes
        memory.level(Purpose.PASSWORDS, max(min(needed, most), 0))

    async def _serve_http(self) -> None:
        """Listen for HTTP where no WebSocket listener does, if the configuration says so."""
        address = self.config.http.place
        if address is None or any(address.beside(each.address) for each in self.config.listener):
            return
        self.http = await self.server.listen(address, options=self._options(address))

    def _apply_hooks(self) -> None:
        """Apply the settings of hooks, and new access rules to them."""
        hooks = self.server.broker.hooks
        hooks.grace_seconds = self.config.hooks.grace_seconds
        hooks.require(self.config.topics_judged)
        hooks.rules_changed()

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
            verify=lambda token, peer: _verify_bearer(options, token, peer),
            identify=self.authenticator.identify,
            seconds_left=self.authenticator.seconds_left,
            stall_seconds_max=self.config.flight.stall_seconds_max,
            arriving_bytes_max=self.config.flight_arriving_bytes_max,
        )

    async def stop(self) -> None:
        """Stop accepting, drain and close, within `stop_seconds_max`."""
        await self.server.stop(seconds_max=self.stop_seconds_max * DRAIN_SHARE_OF_STOP)
        self.authenticator.close()
        if self.spans is not None:
            await asyncio.to_thread(self.spans.close)
        if self.audit is not None:
            self.audit.record(AuditEvent.STOPPED)
            await asyncio.to_thread(self.audit.close)
        self.stopped = True

    def kill_programs(self) -> None:
        """Kill all programs; any thread may call this."""
        self.server.kill_programs()

    def prepare(self, new: Config) -> PreparedPrincipals:
        """Do the long part of `reload`, in any thread; raise OperatorError."""
        return self.authenticator.prepare(reload(self.config, new)[0].config)

    def reload(self, new: Config, prepared: PreparedPrincipals | None = None) -> None:
        """Apply the settings of a new configuration that need no restart; log the others.

        Clients are disconnected if their principal was removed, if its credentials changed, if they
        are anonymous and would now be another principal, or if they have a subscription or hook
        that is no longer allowed. New connections get the certificates
        that are in the files now. Raise OperatorError and change nothing.
        """
        old = self.config
        reloaded, waiting = reload(self.config, new)
        void = self.authenticator.update(reloaded.config, prepared)
        self.config = reloaded.config
        self._keep_memory_for_passwords()
        if self.server.reload_certificates():
            by_certificate = frozenset(
                each.name for each in reloaded.config.principal if each.certificate is not None
            )
            self.authenticator.revoke(by_certificate - void)
            void |= by_certificate
        broker = self.server.broker
        self._apply_hooks()
        broker.rules_changed()
        broker.settings = reloaded.config.broker_settings
        disconnected = 0
        for session in broker.sessions:
            if self._is_void(session, void):
                disconnected += 1
                session.end()
                session.link.abort()  # at once, even if the client does not read
        record_changes(
            broker.audit,
            old,
            reloaded.config,
            changed=reloaded.changed,
            needs_restart=waiting,
        )
        log.info(
            "reloaded",
            changed=list(reloaded.changed),
            needs_restart=waiting,
            disconnected=disconnected,
        )

    def _is_void(self, session: Session, void: frozenset[str]) -> bool:
        """Return whether a client would have to log in again."""
        if not session.principal.is_anonymous:
            return session.principal.name in void
        if session.encoding.protocol.identity_key and self.authenticator.requires_key(session.name):
            return True
        try:
            return self.authenticator.identify(session.link) is not None
        except AuthenticationFailed:
            return True

    def _frame_limit(self, name: str) -> int:
        """Return a limit of a protocol; no frame may be larger than the memory of one client."""
        limit: int = getattr(self.config.limits, name)
        if not name.endswith("bytes_max"):
            return limit
        room = self.server.broker.memory.account_bytes_max - INPUT_GROWTH_BYTES_MAX
        return min(limit, room - 2 * MEMORY_BLOCK_BYTES)

    def _options(self, address: Address | None) -> GatewayOptions:
        """Return the options of a listener; `address` is None for the broker's own programs."""
        limits = self.config.limits
        accepts = address is None or address.accepts_anonymous
        known = self.authenticator
        local = address is None or address.is_loopback
        anonymous = known.local_anonymous if local else known.anonymous
        return GatewayOptions(
            anonymous=anonymous if accepts else None,
            authenticator=self.authenticator,
            accepts_credentials=address is None or address.accepts_credentials,
            handshake_seconds_max=limits.handshake_seconds_max,
            messages_per_second_max=limits.messages_per_second_max or None,
            handshake_bytes_max=limits.handshake_bytes_max,
            frame_limits={name: self._frame_limit(name) for name in PROTOCOL_LIMITS},
            herald_replay=self.config.herald_replay,
            herald_ping_seconds=self.config.herald.ping_seconds,
        )


async def serve(
    config: Config,
    *,
    announce: Callable[[Running], None] | None = None,
    stopping: Callable[[Running], None] | None = None,
    reread: Callable[[], Config] | None = None,
) -> None:
    """Run a broker until SIGINT, SIGTERM or a request for a drain, then drain it.

    Raise OperatorError if it cannot start, or if another process takes its log over: then it stops
    as after a signal.

    `announce` is called once, when every listener accepts clients, and `stopping` when the first
    signal or the request comes. On SIGHUP `reread` returns the
    new configuration; if it raises OperatorError, the error is logged and nothing changes. A second
    SIGINT or SIGTERM ends the process without waiting for the drain.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    lost: list[OperatorError] = []

    def lose(error: OperatorError) -> None:
        lost.append(error)
        signalled.set()

    storage = open_storage(config, lost=lose)
    audit = _open_audit(config)
    descriptors = raise_descriptor_limit(programs=len(config.program))
    connections_max = _connections_max(config, descriptors)
    server = Server(
        settings=config.broker_settings,
        channels=config.channels,
        connections_max=connections_max,
        connections_per_address_max=(
            config.limits.connections_per_address_max or max(1, connections_max * 3 // 4)
        ),
        descriptors_max=descriptors.connections_max,
        stall_seconds=config.limits.stall_seconds_min,
        storage=storage,
        audit=audit or NO_AUDIT,
        memory=config.new_memory_budget(),
        numbers=open_session_numbers(config, storage),
        stored_counts=open_stored_counts(config, storage),
    )
    running = Running(config, server, Authenticator(config), audit=audit)
    running.spans = start_tracing(config.tracing, server.broker)

    def drain(seconds: float | None) -> float:
        running.drain_seconds = seconds
        signalled.set()
        return running.stop_seconds_max

    server.http.drain = drain
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled.set)
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = loop.create_task(_reread(running, reread))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        await running.start()
        gc.collect()
        gc.freeze()  # modules and listeners stay: the collector need not look at them again
        server.process_memory.start()
        if announce is not None:
            announce(running)
        await signalled.wait()
        log.info("stopping")
        if stopping is not None:
            stopping(running)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        await running.stop()
    if lost:
        raise lost[0]


def _open_audit(config: Config) -> AuditLog | None:
    """Open the audit log, if the configuration has one; raise CannotAudit."""
    if config.audit_file is None:
        return None
    return AuditLog(Path(config.audit_file), bytes_max=config.audit.bytes_max)


def _connections_max(config: Config, descriptors: Descriptors) -> int:
    """Return `limits.connections_max`, or what the limit of open files allows, if that is less."""
    wanted, allowed = config.limits.connections_max, descriptors.connections_max
    if allowed < wanted and wanted != SESSIONS_MAX:
        log.warning(
            "connections_max lowered",
            wanted=wanted,
            connections_max=allowed,
            open_files_max=descriptors.limit,
            reserved=descriptors.reserved,
        )
    return min(wanted, allowed)


def _verify_bearer(options: GatewayOptions, token: str, peer: Peer) -> Principal:
    """Return the principal of a token of a Flight call; raise AuthenticationFailed."""
    authenticator = options.active_authenticator(kind="token")
    if authenticator is None:
        raise AuthenticationFailed("token", "no principal has credentials")
    return authenticator.verify_bearer(token, peer)


async def _reread(running: Running, reread: Callable[[], Config] | None) -> None:
    """Apply a new configuration, which a thread reads and compiles: a long one takes seconds."""
    if running.audit is not None:
        running.audit.reopen()
    if reread is None:
        return
    context = running.server.http
    context.reloaded_at = time.time()
    try:
        new = await asyncio.to_thread(reread)
        running.reload(new, await asyncio.to_thread(running.prepare, new))
        context.reload_succeeded = True
    except OperatorError as error:
        context.reload_succeeded = False
        log.warning("not reloaded", error=str(error), code=error.code)
        running.server.broker.audit.record(AuditEvent.CONFIGURATION_REJECTED, code=str(error.code))


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
