"""Starts and stops the Flight service of a broker."""

import asyncio
import contextlib
import socket
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
import structlog

from penstock.core.broker import Broker
from penstock.errors import CannotListen
from penstock.limits import (
    FLIGHT_ARRIVING_BYTES_MAX,
    FLIGHT_STALL_SECONDS_MAX,
    SINK_RETRY_SECONDS,
)
from penstock.ports import Storage
from penstock.server.cannot_listen import cannot_listen
from penstock.server.flight.auth import FlightAuth
from penstock.server.flight.front import FlightFront
from penstock.server.flight.publisher import Publisher
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.flight.reader import FlightReader
from penstock.server.flight.service import FlightService
from penstock.server.flight.shared_epochs import SharedEpochs
from penstock.server.flight.sink_files import SinkFiles
from penstock.server.flight.sinks import Sinks
from penstock.server.group_lag import GroupLag
from penstock.transport.addresses import Address
from penstock.transport.tls import TlsSettings

__all__ = ["FlightListener"]

log = structlog.get_logger("penstock.flight")


class FlightListener:
    """Accepts calls from `start` until `close`. The event loop's thread owns it."""

    def __init__(
        self,
        address: Address,
        *,
        broker: Broker,
        storage: Storage,
        data: Path,
        auth: FlightAuth,
        counts: ReadCounts | None = None,
        stall_seconds_max: float = FLIGHT_STALL_SECONDS_MAX,
        arriving_bytes_max: int = FLIGHT_ARRIVING_BYTES_MAX,
    ) -> None:
        self.address = address
        self._arriving_bytes_max = arriving_bytes_max
        self._stall_seconds_max = stall_seconds_max
        self._broker = broker
        self._storage = storage
        self._data = data
        self._auth = auth
        self._counts = counts
        self._service: FlightService | None = None
        self._front: FlightFront | None = None
        self._tls: TlsSettings | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._publisher: Publisher | None = None
        self._recovering: threading.Thread | None = None
        self._closed = threading.Event()

    async def start(self) -> None:
        """Accept calls, and finish publications that a crash interrupted; raise OperatorError."""
        self._publisher = publisher = Publisher(self._broker)
        service, sinks = await asyncio.to_thread(self._start, publisher)
        self._service = service
        self._recovering = threading.Thread(
            target=self._recover, args=(sinks,), name="penstock-sinks", daemon=True
        )
        self._recovering.start()

    def _start(self, publisher: Publisher) -> tuple[FlightService, Sinks]:
        reader = FlightReader(self._storage)
        files = SinkFiles(self._data)
        files.sweep()
        store = self._storage.sinks
        shared = SharedEpochs(files, store, self._storage, publisher) if store else None
        sinks = Sinks(files, self._storage, publisher, shared)
        self._tls = self._tls_settings()
        listening = self._listening()
        # The name of a unix socket is short, so it is not in the data folder. Only this user may
        # enter the folder.
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-flight-")
        target = Path(self._folder.name) / "grpc"
        self._front = front = FlightFront(
            target,
            context=None if self._tls is None else self._tls.context,
            stall_seconds_max=self._stall_seconds_max,
            arriving_bytes_max=self._arriving_bytes_max,
        )
        try:
            service = FlightService(
                f"grpc+unix://{target}",
                auth=self._auth,
                reader=reader,
                sinks=sinks,
                groups=self._storage.groups,
                has_members=self._broker.has_group,
                lag=GroupLag(self._storage),
                front=front,
                memory=self._broker.memory,
                is_behind=self._broker.turn.is_behind,
                counts=self._counts,
                audit=self._broker.audit,
                stall_seconds_max=self._stall_seconds_max,
            )
        except (pa.ArrowException, OSError) as error:
            listening.close()
            self._folder.cleanup()
            remedy = "stop what uses the port, or give another with --flight"
            raise CannotListen(self.url, _reason(error), remedy) from error
        self.address = self.address.with_port(listening.getsockname()[1])
        front.start(listening)
        return service, sinks

    @property
    def url(self) -> str:
        """The address as the URL that clients use."""
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        scheme = "grpc+tls" if self.address.is_secure else "grpc+tcp"
        return f"{scheme}://{host}:{self.address.port}"

    def _listening(self) -> socket.socket:
        """Return a listening socket; raise CannotListen."""
        try:
            places = socket.getaddrinfo(
                self.address.host, self.address.port, type=socket.SOCK_STREAM
            )
            return socket.create_server(places[0][4][:2], family=places[0][0], backlog=256)
        except OSError as error:
            raise cannot_listen(self.url, error) from None

    @property
    def certificate_expires_at(self) -> float | None:
        """When the certificate expires, in seconds since the epoch; None without a certificate."""
        return None if self._tls is None else self._tls.expires_at

    def reload_certificate(self) -> bool:
        """Read the certificates again; return whether the authorities of clients changed."""
        return False if self._tls is None else self._tls.reload()

    def _tls_settings(self) -> TlsSettings | None:
        certificate, key = self.address.certificate, self.address.key
        if certificate is None or key is None:
            return None
        # gRPC demands the name of its protocol.
        return TlsSettings(certificate, key, client_ca=self.address.client_ca, application="h2")

    def _recover(self, sinks: Sinks) -> None:
        try:
            sinks.recover()
            while sinks.is_shared and not self._closed.wait(SINK_RETRY_SECONDS):
                sinks.finish_failed()
        except Exception:  # the service goes on; the writer gets its own error
            log.exception("sinks not recovered")

    async def close(self, *, seconds_max: float) -> None:
        """Accept no more calls; wait up to `seconds_max` for those in progress."""
        self._closed.set()
        if self._publisher is not None:
            self._publisher.stop()
        service, self._service = self._service, None
        if service is None:
            return
        if self._front is not None:
            self._front.stop_accepting()
        service.stop_reading()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def shut() -> None:
            with contextlib.suppress(Exception):
                service.shutdown()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(done.set)

        # In a thread that is not joined: a client that does not read blocks the shutdown forever.
        threading.Thread(target=shut, name="penstock-flight-stop", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), seconds_max)
        if self._front is not None:
            await asyncio.to_thread(self._front.close)
        if self._folder is not None:
            self._folder.cleanup()


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.removeprefix("Server did not start properly").strip(" :") or "it cannot be had"
