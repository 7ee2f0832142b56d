"""A client of a broker's Flight service: reads ranges, and writes tables."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as pf

from penstock.closeable import Closeable
from penstock.errors import PenstockError
from penstock.flight.errors import FlightFailed, NoAnswer, raised_by
from penstock.flight.protocol import (
    SINK_SCHEMA,
    AbortEpoch,
    ActionName,
    Bounds,
    CommitGroup,
    GroupOffset,
    Match,
    Matched,
    OffsetAt,
    OffsetRange,
    Published,
    PublishEpoch,
    ReadRange,
    Splits,
    Stage,
    Staged,
)
from penstock.limits import (
    FLIGHT_CALL_SECONDS_MAX,
    FLIGHT_FIRST_BYTES_MAX,
    FLIGHT_MESSAGE_BYTES_MAX,
    FLIGHT_PUBLISH_SECONDS_MAX,
    FLIGHT_RETRY_SECONDS,
)
from penstock.ports import Subscription
from penstock.storage.dictionaries import DictionaryDecoder

__all__ = ["FlightClient", "location_of"]

Answer = TypeVar("Answer")

_AWAY = (pf.FlightUnavailableError, pf.FlightCancelledError, pf.FlightTimedOutError)
"""Errors of a call if the server is unreachable, disconnects or exceeds the time limit."""

_SCHEMES = {"grpc": "grpc", "grpc+tcp": "grpc", "grpc+tls": "grpc+tls", "grpcs": "grpc+tls"}


def location_of(endpoint: str) -> str:
    """Return the gRPC location of a broker's Flight address; `HOST:PORT` is without TLS.

    Raise FlightFailed if the address is not valid.
    """
    scheme, separator, place = endpoint.partition("://")
    if not separator:
        scheme, place = "grpc", endpoint
    host, _, port = place.rstrip("/").rpartition(":")
    if scheme not in _SCHEMES or not host or not port.isdigit() or int(port) > 65_535:
        problem = "expected HOST:PORT, grpc://HOST:PORT or grpc+tls://HOST:PORT"
        raise FlightFailed(repr(endpoint), problem)
    return f"{_SCHEMES[scheme]}://{host}:{port}"


@contextmanager
def _closing(stream: pf.FlightStreamWriter) -> Iterator[None]:
    """Close a stream; an error of the rows takes precedence over one of the stream."""
    try:
        yield
    except (pf.FlightError, pa.ArrowException, OSError):
        stream.close()  # raises the error of the server
        raise
    except BaseException:
        with suppress(pf.FlightError, pa.ArrowException, OSError):
            stream.close()
        raise
    stream.close()


def _sendable(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts that the broker accepts as one message each."""
    parts = -(-batch.nbytes // (FLIGHT_MESSAGE_BYTES_MAX // 2)) or 1
    rows = max(-(-len(batch) // parts), 1)
    if parts == 1 or len(batch) <= 1:
        yield batch
        return
    for first in range(0, len(batch), rows):
        part = batch.slice(first, rows)
        if part.nbytes > FLIGHT_MESSAGE_BYTES_MAX // 2 and len(part) > 1:
            yield from _sendable(part)  # its rows are larger than others
        else:
            yield part


class FlightClient(Closeable):
    """A thin client. Errors of the broker are raised as the same classes.

    Raise NoAnswer if the broker is unreachable, FlightFailed for an answer that is not understood.
    It connects with its first call; threads may share it. `certificate` is the PEM text of the
    certificate authority, if the system does not know it.
    """

    def __init__(
        self, endpoint: str, *, token: str | None = None, certificate: bytes | None = None
    ) -> None:
        self.endpoint = endpoint
        self._client = pf.FlightClient(
            location_of(endpoint),
            tls_root_certs=certificate,
            generic_options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_reconnect_backoff_ms", int(1000 * FLIGHT_RETRY_SECONDS)),
            ],
        )
        self._headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    # --- Reading ----------------------------------------------------------------------------------

    def bounds(self) -> dict[int, Bounds]:
        """Return the readable offsets of each partition."""
        return self._act(ActionName.BOUNDS, None, dict[int, Bounds])

    def topics(self) -> list[str]:
        """Return the topics that have a message and that the caller may read."""
        return self._act(ActionName.TOPICS, None, list[str], FLIGHT_PUBLISH_SECONDS_MAX)

    def offset_at(self, timestamp_us: int, *, partition: int = 0) -> int:
        """Return the first offset taken at or after a time, or the end."""
        return self._act(ActionName.OFFSET_AT, OffsetAt(timestamp_us, partition), int)

    def splits(self, request: Splits) -> list[OffsetRange]:
        """Divide a range into parts that meet between row groups, in order."""
        return self._act(ActionName.SPLITS, request, list[OffsetRange], FLIGHT_PUBLISH_SECONDS_MAX)

    def match(self, request: Match) -> Matched:
        """Count the messages of a range with certain topics, and find their end."""
        return self._act(ActionName.MATCH, request, Matched, FLIGHT_PUBLISH_SECONDS_MAX)

    def read(self, request: ReadRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range in order, with columns of plain types.

        Raise OffsetBelowHorizon, OffsetPastEnd, LogDamaged, NotAllowed and others, also after some
        of the messages.
        """
        compact = msgspec.structs.replace(request, dictionaries=True)
        with self._broker_errors():
            reader = self._client.do_get(
                pf.Ticket(msgspec.json.encode(compact)), self._options(None)
            )
            plain = DictionaryDecoder()
            try:
                for chunk in reader:
                    if chunk.data is None:
                        continue
                    if request.dictionaries:
                        yield chunk.data
                    else:
                        yield from plain.parts(chunk.data)
            except GeneratorExit:
                reader.cancel()
                raise

    def schema(self, request: ReadRange) -> pa.Schema:
        """Return the schema of a range."""
        with self._broker_errors():
            reader = self._client.do_get(
                pf.Ticket(msgspec.json.encode(request)), self._options(None)
            )
            schema = reader.schema
            reader.cancel()
            return schema

    # --- Consumer groups --------------------------------------------------------------------------

    def commit_group(
        self,
        group: str,
        offsets: dict[int, int],
        *,
        lost: int = 0,
        subscription: Subscription | None = None,
    ) -> None:
        """Report the offsets of a consumer group: the next offset of each partition.

        `lost` offsets since the last report were gone before the group could read them. The lag of
        the group counts messages of `subscription`, by default of all topics.
        """
        read = subscription or Subscription()
        request = CommitGroup(
            group,
            offsets,
            lost,
            topics=None if read.topics is None else list(read.topics),
            patterns=None if read.patterns is None else list(read.patterns),
            expression=read.expression,
        )
        self._act(ActionName.COMMIT_GROUP, request, type(None))

    def groups(self) -> dict[str, dict[int, GroupOffset]]:
        """Return the offsets of all consumer groups, by group and partition."""
        return self._act(ActionName.GROUPS, None, dict[str, dict[int, GroupOffset]])

    # --- The sink ---------------------------------------------------------------------------------

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        writer: str,
        epoch: int,
        partition: int,
        attempt: int = 0,
        token: str = "",
    ) -> int:
        """Stage the rows of a task on the broker's disk; return their number.

        All batches have the same columns of SINK_SCHEMA. If not all of them arrive, none is kept.
        """
        rows = iter(batches)
        first = next(rows, None)
        schema = SINK_SCHEMA if first is None else first.schema
        request = Stage(writer, epoch, partition, attempt, token)
        descriptor = pf.FlightDescriptor.for_command(msgspec.json.encode(request))
        with self._broker_errors():
            stream, answers = self._client.do_put(descriptor, schema, self._options(None))
            with _closing(stream):
                count = 0
                for batch in () if first is None else itertools.chain([first], rows):
                    for part in _sendable(batch):
                        stream.write_batch(part)
                    count += len(batch)
                stream.write_metadata(pa.py_buffer(msgspec.json.encode(Staged(count))))
                stream.done_writing()
                answer = answers.read()
        if answer is None:
            raise FlightFailed(self.endpoint, "rows were taken and not counted")
        return msgspec.json.decode(answer.to_pybytes(), type=Staged).rows

    def publish_epoch(
        self,
        writer: str,
        epoch: int,
        partitions: Sequence[int],
        *,
        tokens: Sequence[str] = (),
        final: bool = False,
    ) -> Published:
        """Publish the staged rows of an epoch exactly once; return when they are on disk."""
        request = PublishEpoch(writer, epoch, list(partitions), final, list(tokens))
        return self._act(ActionName.PUBLISH_EPOCH, request, Published, FLIGHT_PUBLISH_SECONDS_MAX)

    def abort_epoch(self, writer: str, epoch: int) -> None:
        """Remove the staged rows of an epoch."""
        self._act(ActionName.ABORT_EPOCH, AbortEpoch(writer, epoch), type(None))

    # --- Calls ------------------------------------------------------------------------------------

    def _options(self, seconds_max: float | None) -> pf.FlightCallOptions:
        return pf.FlightCallOptions(timeout=seconds_max, headers=self._headers)

    def _act(
        self,
        action: ActionName,
        request: msgspec.Struct | None,
        kind: Callable[..., Answer] | type[Answer],
        seconds_max: float = FLIGHT_CALL_SECONDS_MAX,
    ) -> Answer:
        body = b"" if request is None else msgspec.json.encode(request)
        if len(body) > FLIGHT_FIRST_BYTES_MAX // 2:
            self.bounds()  # the connection must be authenticated before it may send as much
        with self._broker_errors():
            results = list(
                self._client.do_action(pf.Action(str(action), body), self._options(seconds_max))
            )
        try:
            (result,) = results
            answer: Answer = msgspec.json.decode(result.body.to_pybytes(), type=kind)
        except (ValueError, msgspec.MsgspecError) as error:
            raise FlightFailed(self.endpoint, f"{action}: {error}") from error
        return answer

    @contextmanager
    def _broker_errors(self) -> Iterator[None]:
        """Raise errors of the broker as the classes that they had there."""
        try:
            yield
        except (pf.FlightError, pa.ArrowException, OSError) as error:
            raise self._raised(error) from error

    def _raised(self, error: Exception) -> PenstockError:
        data = getattr(error, "extra_info", None)
        raised = raised_by(data, " ".join(str(error).split()), endpoint=self.endpoint)
        if type(raised) is FlightFailed and isinstance(error, _AWAY):
            return NoAnswer(raised.endpoint, raised.reason)
        return raised
