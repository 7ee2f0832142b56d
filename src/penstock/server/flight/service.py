"""The Flight service: what the calls of `penstock.flight.protocol` do.

Each call has a thread of Arrow's own. An error leaves as a FlightError that carries it whole.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as pf
import structlog

from penstock.core.access import Principal
from penstock.errors import (
    AuthenticationFailed,
    LogUnavailable,
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
from penstock.server.flight.access import ACCESS, Door, Doorkeeper, principal_of
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.flight.reading import Reading
from penstock.server.flight.rows import whole
from penstock.server.flight.sinks import Sinks
from penstock.storage.group_offsets import GroupOffsets

__all__ = ["FlightService"]

log = structlog.get_logger("penstock.flight")

_ERRORS: Final[dict[type[PenstockError], type[pf.FlightError]]] = {
    AuthenticationFailed: pf.FlightUnauthenticatedError,
    NotAllowed: pf.FlightUnauthorizedError,
    LogUnavailable: pf.FlightUnavailableError,
    TooBusy: pf.FlightUnavailableError,
}
_SUMMARIES: Final = {
    ActionName.BOUNDS: "what can be read of each partition",
    ActionName.TOPICS: "the names of all topics",
    ActionName.OFFSET_AT: "the first offset at or after a time",
    ActionName.SPLITS: "a range in parts",
    ActionName.PUBLISH_EPOCH: "publish what tasks have put aside",
    ActionName.ABORT_EPOCH: "remove what tasks have put aside",
    ActionName.COMMIT_GROUP: "remember up to where a group has read",
    ActionName.GROUPS: "up to where groups have read",
}

Request = TypeVar("Request", bound=msgspec.Struct)


class FlightService(pf.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Takes calls at a location from the moment it is made."""

    def __init__(
        self,
        location: pf.Location | str,
        *,
        door: Door,
        reading: Reading,
        sinks: Sinks,
        data: Path,
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        counts: ReadCounts | None = None,
    ) -> None:
        self._reading = reading
        self._sinks = sinks
        self._groups = GroupOffsets(data)
        self._counts = counts or ReadCounts()
        self._stopping = False
        self._turns = threading.BoundedSemaphore(FLIGHT_READS_MAX)
        self._actions: dict[str, Callable[[bytes, Principal], object]] = {
            ActionName.BOUNDS: self._bounds,
            ActionName.TOPICS: lambda _, principal: reading.topics(principal),
            ActionName.OFFSET_AT: lambda body, _: reading.offset_at(_decoded(body, OffsetAt)),
            ActionName.SPLITS: lambda body, principal: reading.splits(
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
            middleware={ACCESS: Doorkeeper(door)},
            tls_certificates=tls_certificates,
        )

    def stop_reading(self) -> None:
        """Let ranges that are being read end where they are, with an error."""
        self._stopping = True

    # --- Calls, see pyarrow -----------------------------------------------------------------------

    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Read a range."""
        with _told():
            principal = principal_of(context)
            request = _decoded(ticket.ticket, ReadRange)
            schema, batches = self._reading.read(request, principal)
        # Not a GeneratorStream: that cannot send dictionaries.
        reader = pa.RecordBatchReader.from_batches(schema, self._in_turn(batches))
        return pf.RecordBatchStream(reader)

    def do_put(
        self,
        context: pf.ServerCallContext,
        descriptor: pf.FlightDescriptor,
        reader: pf.MetadataRecordBatchReader,
        writer: pf.FlightMetadataWriter,
    ) -> None:
        """Put rows aside."""
        with _told():
            principal = principal_of(context)
            request = _decoded(descriptor.command or b"", Stage)
            staged = self._sinks.stage(request, reader.schema, whole(reader), principal)
            writer.write(pa.py_buffer(msgspec.json.encode(staged)))

    def do_action(self, context: pf.ServerCallContext, action: pf.Action) -> Iterator[pf.Result]:
        """Do what an action's type says."""
        with _told():
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
        with _told():
            principal_of(context)
        return [(str(name), summary) for name, summary in _SUMMARIES.items()]

    # --- What they do -----------------------------------------------------------------------------

    def _in_turn(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches while not too many others do."""
        try:
            if not self._turns.acquire(timeout=FLIGHT_WAIT_SECONDS_MAX):
                raise TooBusy(FLIGHT_READS_MAX)
            self._counts.began()
            try:
                for batch in batches:
                    self._check_stopping()
                    self._counts.sent(batch.num_rows, batch.nbytes)
                    yield batch
            finally:
                self._turns.release()
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
        return {self._reading.partition: self._reading.bounds()}

    def _commit_group(self, body: bytes, _principal: Principal) -> None:
        request = _decoded(body, CommitGroup)
        self._groups.commit(request.group, request.offsets, lost=max(request.lost, 0))

    def _list_groups(self, _body: bytes, _principal: Principal) -> object:
        partition, end = self._reading.partition, self._reading.bounds().end
        return {
            group: {
                number: GroupOffset(
                    offset, max(end - offset, 0) if number == partition else 0, state.lost
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
def _told() -> Iterator[None]:
    """Let an error leave as one of Flight's, with all that its class is made of."""
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
