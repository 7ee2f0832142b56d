"""A Flight client that retries its calls while the broker restarts."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa
import structlog

from penstock.errors import LogUnavailable, PenstockError, SinkElsewhere, TierUnavailable
from penstock.flight.client import FlightClient
from penstock.flight.errors import NoAnswer, TooBusy
from penstock.flight.protocol import (
    Bounds,
    Match,
    Matched,
    OffsetRange,
    Published,
    ReadRange,
    Splits,
)
from penstock.limits import FLIGHT_AWAY_SECONDS_MAX, FLIGHT_KEPT_BYTES, FLIGHT_RETRY_SECONDS
from penstock.ports import Subscription

__all__ = ["RetryingClient"]

log = structlog.get_logger("penstock.spark")

Answer = TypeVar("Answer")

_RETRIABLE: Final = (NoAnswer, LogUnavailable, SinkElsewhere, TierUnavailable, TooBusy)


class _Retries:
    """The waits between attempts of one call, up to `seconds_max` after the last success."""

    def __init__(self, endpoint: str, seconds_max: float) -> None:
        self._endpoint = endpoint
        self._seconds_max = seconds_max
        self._deadline: float | None = None

    def succeeded(self) -> None:
        """Reset the deadline after a success."""
        if self._deadline is not None:
            self._deadline = None
            log.warning("broker answers again", endpoint=self._endpoint)

    def wait(self, error: PenstockError) -> None:
        """Sleep until the next attempt; raise the error after the deadline."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds_max
            if self._seconds_max:
                log.warning(
                    "retrying until the broker answers",
                    endpoint=self._endpoint,
                    seconds_max=self._seconds_max,
                    error=str(error),
                )
        if now >= self._deadline:
            if isinstance(error, NoAnswer) and self._seconds_max:
                reason = f"waited for {self._seconds_max:.0f} seconds; {error.reason}"
                raise NoAnswer(error.endpoint, reason) from None
            raise error
        time.sleep(FLIGHT_RETRY_SECONDS)


class RetryingClient:
    """The calls of a Spark job, each repeated until it succeeds.

    Repetition is safe: reads change nothing, and the broker publishes an epoch once. A call raises
    its error `seconds_max` seconds after the last response or row. If the broker is not `expected`
    to run, calls are not retried before the first success, so a wrong address fails at once.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        certificate: bytes | None = None,
        expected: bool = True,
        seconds_max: float = FLIGHT_AWAY_SECONDS_MAX,
    ) -> None:
        self.endpoint = endpoint
        self._client = FlightClient(endpoint, token=token, certificate=certificate)
        self._expected = expected
        self._seconds_max = seconds_max
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    # --- Reading ----------------------------------------------------------------------------------

    def bounds(self) -> dict[int, Bounds]:
        """See FlightClient."""
        return self._retry(self._client.bounds)

    def offset_at(self, timestamp_us: int, *, partition: int = 0) -> int:
        """See FlightClient."""
        return self._retry(lambda: self._client.offset_at(timestamp_us, partition=partition))

    def splits(self, request: Splits) -> list[OffsetRange]:
        """See FlightClient."""
        return self._retry(lambda: self._client.splits(request))

    def match(self, request: Match) -> Matched:
        """See FlightClient."""
        return self._retry(lambda: self._client.match(request))

    def read(self, request: ReadRange) -> Iterator[pa.RecordBatch]:
        """See FlightClient. After a failure, continue the range after the last row."""
        retries = self._retries()
        given = 0
        while True:
            skip = given
            try:
                for batch in self._client.read(request):
                    retries.succeeded()
                    new = batch.slice(min(skip, len(batch)))
                    skip -= len(batch) - len(new)
                    given += len(new)
                    if len(new):
                        yield new
            except _RETRIABLE as error:
                retries.wait(error)
            else:
                return

    def commit_group(
        self,
        group: str,
        offsets: dict[int, int],
        *,
        lost: int = 0,
        subscription: Subscription | None = None,
    ) -> None:
        """See FlightClient; not retried."""
        self._client.commit_group(group, offsets, lost=lost, subscription=subscription)

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
        """See FlightClient. `batches` is iterated once; rows are buffered until they are staged."""
        with _ReplayableBatches(batches) as replayable:
            return self._retry(
                lambda: self._client.stage(
                    replayable,
                    writer=writer,
                    epoch=epoch,
                    partition=partition,
                    attempt=attempt,
                    token=token,
                )
            )

    def publish_epoch(
        self,
        writer: str,
        epoch: int,
        partitions: Sequence[int],
        *,
        tokens: Sequence[str] = (),
        final: bool = False,
    ) -> Published:
        """See FlightClient."""
        return self._retry(
            lambda: self._client.publish_epoch(
                writer, epoch, partitions, tokens=tokens, final=final
            )
        )

    def abort_epoch(self, writer: str, epoch: int) -> None:
        """See FlightClient; not retried, since staged rows expire."""
        self._client.abort_epoch(writer, epoch)

    # --- Retries ----------------------------------------------------------------------------------

    def _retries(self) -> _Retries:
        with self._lock:
            return _Retries(self.endpoint, self._seconds_max if self._expected else 0.0)

    def _retry(self, call: Callable[[], Answer]) -> Answer:
        retries = self._retries()
        while True:
            try:
                answer = call()
            except _RETRIABLE as error:
                retries.wait(error)
            else:
                retries.succeeded()
                with self._lock:
                    self._expected = True
                return answer


class _ReplayableBatches:
    """Batches that can be iterated again: those already read are spooled to a temporary file."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._rest = iter(batches)
        self._file = tempfile.SpooledTemporaryFile(max_size=FLIGHT_KEPT_BYTES)  # noqa: SIM115
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._writer is not None:
            self._file.seek(0)
            yield from pa.ipc.open_stream(pa.PythonFile(self._file, "r"))
            self._file.seek(0, 2)
        for batch in self._rest:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema)
            self._writer.write_batch(batch)
            yield batch
