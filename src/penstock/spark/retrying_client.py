"""A client that waits for a broker that is being restarted, and then goes on where it was."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa
import structlog

from penstock.errors import LogUnavailable, PenstockError
from penstock.flight.client import FlightClient
from penstock.flight.errors import NoAnswer, TooBusy
from penstock.flight.protocol import Bounds, OffsetRange, Published, ReadRange, Splits
from penstock.limits import FLIGHT_AWAY_SECONDS_MAX, FLIGHT_KEPT_BYTES, FLIGHT_RETRY_SECONDS

__all__ = ["RetryingClient"]

log = structlog.get_logger("penstock.spark")

Answer = TypeVar("Answer")

_PASSING: Final = (NoAnswer, LogUnavailable, TooBusy)
"""What may be over when the call is made again."""


class _Wait:
    """How long a broker has not answered; whoever hears of it says so."""

    def __init__(self, endpoint: str, seconds_max: float) -> None:
        self._endpoint = endpoint
        self._seconds_max = seconds_max
        self._deadline: float | None = None

    def over(self) -> None:
        """Take note of an answer."""
        if self._deadline is not None:
            self._deadline = None
            log.warning("the broker is there again", endpoint=self._endpoint)

    def next_try(self, error: PenstockError) -> None:
        """Wait until it is worth a try; raise the error if it was waited for long enough."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds_max
            if self._seconds_max:
                log.warning(
                    "waiting for the broker",
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
    """The calls that a job makes, each repeated until it is answered.

    All of them can be: reading changes nothing, and what is published is published once. A call
    that nobody answers for `seconds_max`, after the last answer or row, raises what it failed
    with. A client that is not `expected` to be answered fails at once until it was, so that a
    wrong address is told without waiting.
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
        return self._patiently(self._client.bounds)

    def offset_at(self, timestamp_us: int, *, partition: int = 0) -> int:
        """See FlightClient."""
        return self._patiently(lambda: self._client.offset_at(timestamp_us, partition=partition))

    def splits(self, request: Splits) -> list[OffsetRange]:
        """See FlightClient."""
        return self._patiently(lambda: self._client.splits(request))

    def read(self, request: ReadRange) -> Iterator[pa.RecordBatch]:
        """See FlightClient: a range that is read again has the same messages in the same order."""
        wait = self._wait()
        given = 0
        while True:
            skip = given
            try:
                for batch in self._client.read(request):
                    wait.over()
                    new = batch.slice(min(skip, len(batch)))
                    skip -= len(batch) - len(new)
                    given += len(new)
                    if len(new):
                        yield new
            except _PASSING as error:
                wait.next_try(error)
            else:
                return

    def commit_group(self, group: str, offsets: dict[int, int], *, lost: int = 0) -> None:
        """See FlightClient; nobody waits for a report."""
        self._client.commit_group(group, offsets, lost=lost)

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
        """See FlightClient; rows are gone through once, and kept here until they are put aside."""
        with _Kept(batches) as kept:
            return self._patiently(
                lambda: self._client.stage(
                    kept,
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
        return self._patiently(
            lambda: self._client.publish_epoch(
                writer, epoch, partitions, tokens=tokens, final=final
            )
        )

    def abort_epoch(self, writer: str, epoch: int) -> None:
        """See FlightClient; nobody waits for it: what was put aside goes by itself in time."""
        self._client.abort_epoch(writer, epoch)

    # --- Patience ---------------------------------------------------------------------------------

    def _wait(self) -> _Wait:
        with self._lock:
            return _Wait(self.endpoint, self._seconds_max if self._expected else 0.0)

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        wait = self._wait()
        while True:
            try:
                answer = call()
            except _PASSING as error:
                wait.next_try(error)
            else:
                wait.over()
                with self._lock:
                    self._expected = True
                return answer


class _Kept:
    """Batches that can be gone through again: those that were taken are kept."""

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
