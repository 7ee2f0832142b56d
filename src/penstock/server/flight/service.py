"""The Flight service: handlers for the calls of `penstock.flight.protocol`.

Each call runs in a thread of pyarrow. An error is sent as a FlightError with all its fields.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as pf
import structlog

from penstock.core.access import Principal
from penstock.errors import (
    AuthenticationFailed,
    LogUnavailable,
    MemoryExhausted,
    NotAllowed,
    PenstockError,
)
from penstock.flight.errors import BadRequest, TooBusy, failure_of, with_failure
from penstock.flight.protocol import (
    AbortEpoch,
    ActionName,
    CommitGroup,
    GroupOffset,
    OffsetAt,
    PublishEpoch,
    ReadRange,
    Splits,
    Stage,
)
from penstock.limits import (
    FLIGHT_READS_MAX,
    FLIGHT_REQUEST_BYTES_MAX,
    FLIGHT_WAIT_SECONDS_MAX,
)
from penstock.ports import ConsumerGroups
from penstock.server.flight.auth import AUTH, AuthMiddlewareFactory, FlightAuth, principal_of
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.flight.reader import FlightReader
from penstock.server.flight.rows import whole
from penstock.server.flight.sinks import Sinks

__all__ = ["FlightService"]

log = structlog.get_logger("penstock.flight")

_ERRORS: Final[dict[type[PenstockError], type[pf.FlightError]]] = {
    AuthenticationFailed: pf.FlightUnauthenticatedError,
    NotAllowed: pf.FlightUnauthorizedError,
    LogUnavailable: pf.FlightUnavailableError,
    MemoryExhausted: pf.FlightUnavailableError,
    TooBusy: pf.FlightUnavailableError,
}
_SUMMARIES: Final = {
    ActionName.BOUNDS: "the readable offsets of each partition",
    ActionName.TOPICS: "the names of all topics",
    ActionName.OFFSET_AT: "the first offset at or after a time",
    ActionName.SPLITS: "a range in parts",
    ActionName.PUBLISH_EPOCH: "publish the staged rows of an epoch",
    ActionName.ABORT_EPOCH: "remove the staged rows of an epoch",
    ActionName.COMMIT_GROUP: "store the offsets of a consumer group",
    ActionName.GROUPS: "the offsets of all consumer groups",
}

Request = TypeVar("Request", bound=msgspec.Struct)


class FlightService(pf.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Accepts calls at a location from its creation."""

    def __init__(
        self,
        location: pf.Location | str,
        *,
        auth: FlightAuth,
        reader: FlightReader,
        sinks: Sinks,
        groups: ConsumerGroups,
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        counts: ReadCounts | None = None,
    ) -> None:
        self._reader = reader
        self._sinks = sinks
        self._groups = groups
        self._counts = counts or ReadCounts()
        self._stopping = False
        self._read_slots = threading.BoundedSemaphore(FLIGHT_READS_MAX)
        self._actions: dict[str, Callable[[bytes, Principal], object]] = {
            ActionName.BOUNDS: self._bounds,
            ActionName.TOPICS: lambda _, principal: reader.topics(principal),
            ActionName.OFFSET_AT: lambda body, _: reader.offset_at(_decoded(body, OffsetAt)),
            ActionName.SPLITS: lambda body, principal: reader.splits(
                _decoded(body, Splits), principal
            ),
            ActionName.PUBLISH_EPOCH: lambda body, principal: sinks.publish(
                _decoded(body, PublishEpoch), principal
            ),
            ActionName.ABORT_EPOCH: lambda body, principal: sinks.abort(
                _decoded(body, AbortEpoch), principal
            ),
            ActionName.COMMIT_GROUP: self._commit_group,
            ActionName.GROUPS: self._list_groups,
        }
        super().__init__(
            location,
            middleware={AUTH: AuthMiddlewareFactory(auth)},
            tls_certificates=tls_certificates,
        )

    def stop_reading(self) -> None:
        """End ranges that are being read, with an error."""
        self._stopping = True

    # --- Calls, see pyarrow -----------------------------------------------------------------------

    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Read a range."""
        with _flight_errors():
            principal = principal_of(context)
            request = _decoded(ticket.ticket, ReadRange)
            schema, batches = self._reader.read(request, principal)
        # Not a GeneratorStream: that cannot send dictionaries.
        reader = pa.RecordBatchReader.from_batches(schema, self._limited(batches))
        return pf.RecordBatchStream(reader)

    def do_put(
        self,
        context: pf.ServerCallContext,
        descriptor: pf.FlightDescriptor,
        reader: pf.MetadataRecordBatchReader,
        writer: pf.FlightMetadataWriter,
    ) -> None:
        """Stage rows."""
        with _flight_errors():
            principal = principal_of(context)
            request = _decoded(descriptor.command or b"", Stage)
            staged = self._sinks.stage(request, reader.schema, whole(reader), principal)
            writer.write(pa.py_buffer(msgspec.json.encode(staged)))

    def do_action(self, context: pf.ServerCallContext, action: pf.Action) -> Iterator[pf.Result]:
        """Run an action."""
        with _flight_errors():
            principal = principal_of(context)
            done = self._actions.get(action.type)
            if done is None:
                raise BadRequest(
                    f"action {action.type[:99]!r}", f"there are {', '.join(ActionName)}"
                )
            body = action.body.to_pybytes() if action.body is not None else b""
            answer = done(body, principal)
        return iter([pf.Result(pa.py_buffer(msgspec.json.encode(answer)))])

    def list_actions(self, context: pf.ServerCallContext) -> list[tuple[str, str]]:
        """Return all actions."""
        with _flight_errors():
            principal_of(context)
        return [(str(name), summary) for name, summary in _SUMMARIES.items()]

    # --- Actions ----------------------------------------------------------------------------------

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches; at most FLIGHT_READS_MAX calls do so at a time."""
        try:
            if not self._read_slots.acquire(timeout=FLIGHT_WAIT_SECONDS_MAX):
                raise TooBusy(FLIGHT_READS_MAX)
            self._counts.began()
            try:
                for batch in batches:
                    self._check_stopping()
                    self._counts.sent(batch.num_rows, batch.nbytes)
                    yield batch
            finally:
                self._read_slots.release()
        except PenstockError as error:
            raise pf.FlightServerError(with_failure(error)) from None
        except OSError as error:
            log.warning("call failed", error=str(error))
            failed = LogUnavailable(error.strerror or str(error))
            raise pf.FlightServerError(with_failure(failed)) from None

    def _check_stopping(self) -> None:
        if self._stopping:
            raise LogUnavailable("the broker is stopping")

    def _bounds(self, _body: bytes, _principal: Principal) -> object:
        return self._reader.bounds()

    def _commit_group(self, body: bytes, _principal: Principal) -> None:
        request = _decoded(body, CommitGroup)
        self._groups.commit(request.group, request.offsets, lost=max(request.lost, 0))

    def _list_groups(self, _body: bytes, _principal: Principal) -> object:
        bounds = self._reader.bounds()
        return {
            group: {
                number: GroupOffset(
                    offset,
                    max(bounds[number].end - offset, 0) if number in bounds else 0,
                    state.lost,
                )
                for number, offset in state.offsets.items()
            }
            for group, state in self._groups.all().items()
        }


def _decoded(data: bytes, kind: type[Request]) -> Request:
    """Return a request; raise BadRequest."""
    if len(data) > FLIGHT_REQUEST_BYTES_MAX:
        raise BadRequest(kind.__name__, f"it has more than {FLIGHT_REQUEST_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise BadRequest(kind.__name__, str(error)) from None
    except UnicodeDecodeError:
        raise BadRequest(kind.__name__, "expected JSON in UTF-8") from None


@contextmanager
def _flight_errors() -> Iterator[None]:
    """Convert errors to FlightErrors with all their fields."""
    try:
        yield
    except PenstockError as error:
        raise _flight_error(error) from error
    except pf.FlightError:
        raise
    except OSError as error:
        log.warning("call failed", error=str(error))
        raise _flight_error(LogUnavailable(error.strerror or str(error))) from error


def _flight_error(error: PenstockError) -> pf.FlightError:
    kind = _ERRORS.get(type(error), pf.FlightServerError)
    text = str(error)
    made: Any = kind(f"{error.code}: {text}", msgspec.json.encode(failure_of(error)))
    return made
