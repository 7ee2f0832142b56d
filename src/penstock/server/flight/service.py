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

from penstock.core.access import Action, Principal, authorize, authorize_anywhere, is_allowed
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
from penstock.ports import NO_AUDIT, Audit, AuditEvent, ConsumerGroups
from penstock.protocols import FLIGHT
from penstock.server.flight.auth import (
    AUTH,
    AuthMiddlewareFactory,
    FlightAuth,
    Login,
    login_of,
    method_of,
)
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
    ActionName.GROUPS: "the offsets of consumer groups",
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
        client_authorities: bytes | None = None,
        counts: ReadCounts | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._audit = audit
        self._reader = reader
        self._sinks = sinks
        self._groups = groups
        self._counts = counts or ReadCounts()
        self._stopping = False
        self._read_slots = threading.BoundedSemaphore(FLIGHT_READS_MAX)
        self._actions: dict[str, Callable[[bytes, Principal], object]] = {
            ActionName.BOUNDS: self._bounds,
            ActionName.TOPICS: lambda _, principal: reader.topics(principal),
            ActionName.OFFSET_AT: self._offset_at,
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
            verify_client=client_authorities is not None,
            root_certificates=client_authorities,
        )

    def stop_reading(self) -> None:
        """End ranges that are being read, with an error."""
        self._stopping = True

    # --- Calls, see pyarrow -----------------------------------------------------------------------

    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Read a range."""
        with self._errors(context):
            login = self._login(context)
            request = _decoded(ticket.ticket, ReadRange)
            schema, batches = self._reader.read(request, login.principal)
        # Not a GeneratorStream: that cannot send dictionaries.
        allowed = self._reader.while_allowed(batches, request, login.principal)
        reader = pa.RecordBatchReader.from_batches(schema, self._limited(allowed, login))
        return pf.RecordBatchStream(reader)

    def do_put(
        self,
        context: pf.ServerCallContext,
        descriptor: pf.FlightDescriptor,
        reader: pf.MetadataRecordBatchReader,
        writer: pf.FlightMetadataWriter,
    ) -> None:
        """Stage rows."""
        with self._errors(context):
            login = self._login(context)
            request = _decoded(descriptor.command or b"", Stage)
            rows = _checked(whole(reader), login)
            staged = self._sinks.stage(request, reader.schema, rows, login.principal)
            writer.write(pa.py_buffer(msgspec.json.encode(staged)))

    def do_action(self, context: pf.ServerCallContext, action: pf.Action) -> Iterator[pf.Result]:
        """Run an action."""
        with self._errors(context):
            principal = self._login(context).principal
            done = self._actions.get(action.type)
            if done is None:
                raise BadRequest(
                    f"action {action.type[:99]!r}", f"there are {', '.join(ActionName)}"
                )
            body = action.body.to_pybytes() if action.body is not None else b""
            answer = done(body, principal)
            if action.type == ActionName.COMMIT_GROUP:
                self._audit.record(
                    AuditEvent.ADMINISTERED,
                    principal=principal.name,
                    peer=context.peer(),
                    protocol=FLIGHT.label,
                    act=action.type,
                    name=_decoded(body, CommitGroup).group,
                )
        return iter([pf.Result(pa.py_buffer(msgspec.json.encode(answer)))])

    def list_actions(self, context: pf.ServerCallContext) -> list[tuple[str, str]]:
        """Return all actions."""
        with self._errors(context):
            self._login(context)
        return [(str(name), summary) for name, summary in _SUMMARIES.items()]

    # --- Rights -----------------------------------------------------------------------------------

    def _login(self, context: pf.ServerCallContext) -> Login:
        """Authenticate a call and record it; raise AuthenticationFailed."""
        common = {
            "peer": context.peer(),
            "protocol": FLIGHT.label,
            "method": method_of(context),
        }
        try:
            login = login_of(context)
        except AuthenticationFailed as error:
            self._audit.record(AuditEvent.LOGIN_FAILED, **common, reason=error.reason)
            raise
        self._audit.record(AuditEvent.LOGIN, principal=login.principal.name, **common)
        return login

    @contextmanager
    def _errors(self, context: pf.ServerCallContext) -> Iterator[None]:
        """Convert errors to FlightErrors, and record refusals."""
        with _flight_errors():
            try:
                yield
            except NotAllowed as error:
                self._audit.record(
                    AuditEvent.REFUSED,
                    principal=error.principal,
                    peer=context.peer(),
                    protocol=FLIGHT.label,
                    action=str(error.action),
                    name=error.topic,
                )
                raise

    # --- Actions ----------------------------------------------------------------------------------

    def _limited(self, batches: Iterator[pa.RecordBatch], login: Login) -> Iterator[pa.RecordBatch]:
        """Yield batches; at most FLIGHT_READS_MAX calls do so at a time."""
        try:
            if not self._read_slots.acquire(timeout=FLIGHT_WAIT_SECONDS_MAX):
                raise TooBusy(FLIGHT_READS_MAX)
            self._counts.began()
            try:
                for batch in batches:
                    self._check_stopping()
                    login.check()
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

    def _bounds(self, _body: bytes, principal: Principal) -> object:
        authorize_anywhere(principal, Action.SUBSCRIBE, Action.PUBLISH)
        return self._reader.bounds()

    def _offset_at(self, body: bytes, principal: Principal) -> object:
        authorize_anywhere(principal, Action.SUBSCRIBE)
        return self._reader.offset_at(_decoded(body, OffsetAt))

    def _commit_group(self, body: bytes, principal: Principal) -> None:
        request = _decoded(body, CommitGroup)
        authorize(principal, Action.GROUP, request.group)
        self._groups.commit(request.group, request.offsets, lost=max(request.lost, 0))

    def _list_groups(self, _body: bytes, principal: Principal) -> object:
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
            if is_allowed(principal, Action.GROUP, group)
        }


def _checked(batches: Iterator[pa.RecordBatch], login: Login) -> Iterator[pa.RecordBatch]:
    """Yield batches as long as the caller's credentials are valid; raise AuthenticationFailed."""
    for batch in batches:
        login.check()
        yield batch


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
