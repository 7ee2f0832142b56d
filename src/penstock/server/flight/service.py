"""The Flight service: handlers for the calls of `penstock.flight.protocol`.

Each call runs in a thread of pyarrow. An error is sent as a FlightError with all its fields.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as pf
import structlog

from penstock.core.access import Action, Principal, authorize, authorize_anywhere, is_allowed
from penstock.errors import (
    AuthenticationFailed,
    GroupDiffers,
    LogUnavailable,
    MemoryExhausted,
    NotAllowed,
    PenstockError,
    SinkElsewhere,
    TierUnavailable,
)
from penstock.flight.errors import (
    BadRequest,
    InternalError,
    SinkDamaged,
    StagedRowsDamaged,
    TooBusy,
    failure_of,
)
from penstock.flight.protocol import (
    AbortEpoch,
    ActionName,
    CommitGroup,
    GroupOffset,
    Match,
    OffsetAt,
    PublishEpoch,
    ReadRange,
    Splits,
    Stage,
)
from penstock.limits import (
    FLIGHT_LISTINGS_MAX,
    FLIGHT_LISTINGS_PER_PRINCIPAL_MAX,
    FLIGHT_READS_MAX,
    FLIGHT_READS_PER_PRINCIPAL_MAX,
    FLIGHT_REQUEST_BYTES_MAX,
    FLIGHT_STALL_SECONDS_MAX,
    FLIGHT_WORKERS_PER_PROCESSOR,
    FLIGHT_WRITES_MAX,
    FLIGHT_WRITES_PER_PRINCIPAL_MAX,
)
from penstock.memory import MemoryBudget
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
from penstock.server.flight.calls import CallLimit, StallWatch, WorkLimit
from penstock.server.flight.front import FlightFront
from penstock.server.flight.read_counts import ReadCounts
from penstock.server.flight.read_memory import ReadMemory
from penstock.server.flight.reader import FlightReader
from penstock.server.flight.rows import whole
from penstock.server.flight.sinks import Sinks
from penstock.server.group_lag import GroupLag

__all__ = ["FlightService"]

log = structlog.get_logger("penstock.flight")

_ERRORS: Final[dict[type[PenstockError], type[pf.FlightError]]] = {
    AuthenticationFailed: pf.FlightUnauthenticatedError,
    NotAllowed: pf.FlightUnauthorizedError,
    LogUnavailable: pf.FlightUnavailableError,
    TierUnavailable: pf.FlightUnavailableError,
    MemoryExhausted: pf.FlightUnavailableError,
    SinkElsewhere: pf.FlightUnavailableError,
    TooBusy: pf.FlightUnavailableError,
}
_SUMMARIES: Final = {
    ActionName.BOUNDS: "the readable offsets of each partition",
    ActionName.TOPICS: "the names of all topics",
    ActionName.OFFSET_AT: "the first offset at or after a time",
    ActionName.SPLITS: "a range in parts",
    ActionName.MATCH: "the number of messages of a range with certain topics, and their end",
    ActionName.PUBLISH_EPOCH: "publish the staged rows of an epoch",
    ActionName.ABORT_EPOCH: "remove the staged rows of an epoch",
    ActionName.COMMIT_GROUP: "store the offsets of a consumer group",
    ActionName.GROUPS: "the offsets of consumer groups",
}
_WAITING: Final = frozenset(
    {ActionName.PUBLISH_EPOCH, ActionName.ABORT_EPOCH, ActionName.COMMIT_GROUP}
)
"""Actions that wait for the log, or for other calls of their writer."""

_LISTINGS: Final = frozenset(
    {ActionName.TOPICS, ActionName.SPLITS, ActionName.MATCH, ActionName.GROUPS}
)
"""Actions whose work or answers grow with the log or the number of groups."""

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
        has_members: Callable[[str], bool],
        lag: GroupLag,
        front: FlightFront,
        memory: MemoryBudget,
        is_behind: Callable[[float], bool],
        counts: ReadCounts | None = None,
        audit: Audit = NO_AUDIT,
        stall_seconds_max: float = FLIGHT_STALL_SECONDS_MAX,
    ) -> None:
        self._audit = audit
        self._memory = memory
        self._reader = reader
        self._sinks = sinks
        self._groups = groups
        self._has_members = has_members
        self._lag = lag
        self._counts = counts or ReadCounts()
        self._stopping = False
        self._front = front
        self._reads = CallLimit(FLIGHT_READS_MAX, FLIGHT_READS_PER_PRINCIPAL_MAX)
        self._writes = CallLimit(FLIGHT_WRITES_MAX, FLIGHT_WRITES_PER_PRINCIPAL_MAX)
        self._listings = CallLimit(FLIGHT_LISTINGS_MAX, FLIGHT_LISTINGS_PER_PRINCIPAL_MAX)
        threads = max(1, int(FLIGHT_WORKERS_PER_PROCESSOR * (os.cpu_count() or 1)))
        self._work = WorkLimit(threads, is_behind)
        self._stalls = StallWatch(front.cut, stall_seconds_max)
        self._actions: dict[str, Callable[[bytes, Principal], object]] = {
            ActionName.BOUNDS: self._bounds,
            ActionName.TOPICS: lambda _, principal: reader.topics(principal),
            ActionName.OFFSET_AT: self._offset_at,
            ActionName.SPLITS: lambda body, principal: reader.splits(
                _decoded(body, Splits), principal
            ),
            ActionName.MATCH: lambda body, principal: reader.match(
                _decoded(body, Match), principal
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
        )

    def stop_reading(self) -> None:
        """End ranges that are being read, with an error."""
        self._stopping = True
        self._stalls.close()

    # --- Calls, see pyarrow -----------------------------------------------------------------------

    def do_get(self, context: pf.ServerCallContext, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Read a range."""
        with self._errors(context):
            login = self._login(context)
            request = _decoded(ticket.ticket, ReadRange)
            memory = self._read_memory(login.principal)
            schema, batches = self._reader.read(
                request, login.principal, reading=memory.reading, paced=self._work.paced
            )
        allowed = self._reader.while_allowed(batches, request, login.principal)
        # Each batch as a reader of its own: a stream of batches cannot send dictionaries, and a
        # single reader would send the traceback of an error.
        found = self._limited(allowed, login, context.peer(), memory)
        return pf.GeneratorStream(
            schema, (pa.RecordBatchReader.from_batches(schema, [batch]) for batch in found)
        )

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
            rows = _checked(whole(reader, self._work), login)
            with self._writes.entered(login.principal.name):
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
            if action.type in _LISTINGS:
                return self._listed(context, done, body, principal)
            recorded: AbstractContextManager[None] = nullcontext()
            if action.type == ActionName.COMMIT_GROUP:
                group = _decoded(body, CommitGroup).group
                recorded = self._administering(context, principal, action.type, group)
            with recorded, nullcontext() if action.type in _WAITING else self._work:
                answer = done(body, principal)
            return iter([pf.Result(pa.py_buffer(msgspec.json.encode(answer)))])

    @contextmanager
    def _administering(
        self, context: pf.ServerCallContext, principal: Principal, act: str, name: str
    ) -> Iterator[None]:
        """Record the outcome of an administrative act. A failed act may have taken effect."""
        reason: str | None = None
        try:
            yield
        except PenstockError as error:
            reason = error.code
            raise
        except Exception:
            reason = "internal-error"
            raise
        finally:
            if reason != NotAllowed.code:  # a refusal has an event of its own
                self._audit.record(
                    AuditEvent.ADMINISTERED,
                    principal=principal.name,
                    peer=self._front.name_of(context.peer()),
                    protocol=FLIGHT.label,
                    act=act,
                    outcome="done" if reason is None else "failed",
                    reason=reason,
                    name=name,
                )

    def list_actions(self, context: pf.ServerCallContext) -> list[tuple[str, str]]:
        """Return all actions."""
        with self._errors(context):
            self._login(context)
            return [(str(name), summary) for name, summary in _SUMMARIES.items()]

    def list_flights(self, context: pf.ServerCallContext, *_: object) -> None:
        """Refuse the call; the same for the others that the service does not have."""
        self._refuse(context, "ListFlights")

    def get_flight_info(self, context: pf.ServerCallContext, *_: object) -> None:
        """See list_flights."""
        self._refuse(context, "GetFlightInfo")

    def do_exchange(self, context: pf.ServerCallContext, *_: object) -> None:
        """See list_flights."""
        self._refuse(context, "DoExchange")

    def _refuse(self, context: pf.ServerCallContext, call: str) -> None:
        with self._errors(context):
            self._login(context)
            raise BadRequest(call, "the broker has DoGet, DoPut, DoAction and ListActions only")

    # --- Rights -----------------------------------------------------------------------------------

    def _login(self, context: pf.ServerCallContext) -> Login:
        """Authenticate a call and record it; raise AuthenticationFailed."""
        common = {
            "peer": self._front.name_of(context.peer()),
            "protocol": FLIGHT.label,
            "method": method_of(context),
        }
        try:
            login = login_of(context, self._front.client_of(context.peer()))
        except AuthenticationFailed as error:
            self._audit.record(AuditEvent.LOGIN_FAILED, **common, reason=error.reason)
            raise
        self._audit.record(AuditEvent.LOGIN, principal=login.principal.name, **common)
        self._front.authenticated(context.peer())
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
                    peer=self._front.name_of(context.peer()),
                    protocol=FLIGHT.label,
                    action=str(error.action),
                    name=error.topic,
                    rule=error.rule or None,
                )
                raise

    # --- Actions ----------------------------------------------------------------------------------

    def _listed(
        self,
        context: pf.ServerCallContext,
        done: Callable[[bytes, Principal], object],
        body: bytes,
        principal: Principal,
    ) -> Iterator[pf.Result]:
        """Yield the answer of an action that may be long, at most so many at a time."""
        peer = context.peer()
        memory = self._read_memory(principal)
        with self._errors(context), self._listings.entered(principal.name), memory:
            with self._work:
                answer = msgspec.json.encode(done(body, principal))
            memory.sending(len(answer))
            with self._stalls.watching(peer):
                yield pf.Result(pa.py_buffer(answer))

    def _limited(
        self, batches: Iterator[pa.RecordBatch], login: Login, peer: str, memory: ReadMemory
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches, at most so many calls at a time; cut a client that does not read them."""
        with _flight_errors(), memory, self._reads.entered(login.principal.name):
            self._counts.began()
            for batch in self._work.over(batches):
                self._check_stopping()
                login.check()
                self._counts.sent(batch.num_rows, batch.nbytes)
                memory.sending(batch.nbytes)
                with self._stalls.watching(peer):
                    yield batch

    def _read_memory(self, principal: Principal) -> ReadMemory:
        return ReadMemory(
            self._memory, principal=principal.name, check=self._check_stopping, work=self._work
        )

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
        if self._has_members(request.group):  # their state would replace the report
            raise GroupDiffers(request.group, "has members that are clients of the broker")
        self._groups.commit(
            request.group,
            request.offsets,
            lost=max(request.lost, 0),
            subscription=self._reader.subscription(request, principal),
            owner=principal.name,
        )

    def _list_groups(self, _body: bytes, principal: Principal) -> object:
        states = self._groups.all()
        lags = self._lag.of(states, self._reader.offsets())
        return {
            group: {
                number: GroupOffset(offset, lags[group][number].messages, state.lost)
                for number, offset in state.offsets.items()
            }
            for group, state in states.items()
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
    """Convert errors to FlightErrors with all their fields; log those that are not expected."""
    try:
        yield
    except PenstockError as error:
        raise _flight_error(_without_path(error)) from None
    except pf.FlightError as error:  # of a client that is gone
        log.debug("call ended", error=str(error)[:200])
        raise pf.FlightCancelledError("the call was cancelled") from None
    except OSError as error:
        log.warning("call failed", error=str(error))
        raise _flight_error(LogUnavailable(error.strerror or "input or output failed")) from None
    except Exception as error:
        error_id = uuid.uuid4().hex[:12]
        log.exception("call failed", error=repr(error)[:200], error_id=error_id)
        raise _flight_error(InternalError(error_id)) from None


def _without_path(error: PenstockError) -> PenstockError:
    """Return an error for a client: places of files are for the operator's log."""
    if isinstance(error, SinkDamaged | StagedRowsDamaged):
        log.warning("call failed", error=str(error))
        return type(error)(Path(error.path).name, error.reason)
    return error


def _flight_error(error: PenstockError) -> pf.FlightError:
    kind = _ERRORS.get(type(error), pf.FlightServerError)
    made: Any = kind(f"{error.code}: {error}", msgspec.json.encode(failure_of(error)))
    return made
