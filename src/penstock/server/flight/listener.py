"""Starts and stops the Flight service of a broker."""

import asyncio
import contextlib
import socket
import threading
from pathlib import Path

import pyarrow as pa
import structlog

from penstock.core.broker import Broker
from penstock.errors import CannotListen, CertificateUnusable
from penstock.ports import Storage
from penstock.server.cannot_listen import cannot_listen
from penstock.server.flight.auth import FlightAuth
from penstock.server.flight.publisher import Publisher
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.flight.reader import FlightReader
from penstock.server.flight.service import FlightService
from penstock.server.flight.sink_files import SinkFiles
from penstock.server.flight.sinks import Sinks
from penstock.transport.addresses import Address

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
    ) -> None:
        self.address = address
        self._broker = broker
        self._storage = storage
        self._data = data
        self._auth = auth
        self._counts = counts
        self._service: FlightService | None = None
        self._publisher: Publisher | None = None
        self._recovering: threading.Thread | None = None

    async def start(self) -> None:
        """Accept calls, and finish publications that a crash interrupted; raise OperatorError."""
        self._publisher = publisher = Publisher(self._broker)
        service, sinks = await asyncio.to_thread(self._start, publisher)
        self._service = service
        self.address = self.address.with_port(service.port)
        self._recovering = threading.Thread(
            target=self._recover, args=(sinks,), name="penstock-sinks", daemon=True
        )
        self._recovering.start()

    def _start(self, publisher: Publisher) -> tuple[FlightService, Sinks]:
        reader = FlightReader(self._storage)
        files = SinkFiles(self._data)
        files.sweep()
        sinks = Sinks(files, self._storage, publisher)
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        scheme = "grpc+tls" if self.address.is_secure else "grpc+tcp"
        self._check_port(f"{scheme}://{host}:{self.address.port}")
        try:
            service = FlightService(
                f"{scheme}://{host}:{self.address.port}",
                auth=self._auth,
                reader=reader,
                sinks=sinks,
                groups=self._storage.groups,
                tls_certificates=self._certificates(),
                client_authorities=self._client_authorities(),
                counts=self._counts,
                audit=self._broker.audit,
            )
        except (pa.ArrowException, OSError) as error:
            url = f"{scheme}://{host}:{self.address.port}"
            remedy = "stop what uses the port, or give another with --flight"
            raise CannotListen(url, _reason(error), remedy) from error
        return service, sinks

    def _check_port(self, url: str) -> None:
        """Raise CannotListen if the port is taken; gRPC prints the reason to standard error."""
        try:
            places = socket.getaddrinfo(
                self.address.host, self.address.port, type=socket.SOCK_STREAM
            )
            with socket.create_server(places[0][4][:2], family=places[0][0]):
                pass
        except OSError as error:
            raise cannot_listen(url, error) from None

    def _certificates(self) -> list[tuple[bytes, bytes]] | None:
        certificate, key = self.address.certificate, self.address.key
        if certificate is None or key is None:
            return None
        return [(_read(certificate), _read(key))]

    def _client_authorities(self) -> bytes | None:
        path = self.address.client_ca
        return None if path is None else _read(path)

    def _recover(self, sinks: Sinks) -> None:
        try:
            sinks.recover()
        except Exception:  # the service goes on; the writer gets its own error
            log.exception("sinks not recovered")

    async def close(self, *, seconds_max: float) -> None:
        """Accept no more calls; wait up to `seconds_max` for those in progress."""
        if self._publisher is not None:
            self._publisher.stop()
        service, self._service = self._service, None
        if service is None:
            return
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


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateUnusable(path, error.strerror or str(error)) from error


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text.removeprefix("Server did not start properly").strip(" :") or "it cannot be had"
