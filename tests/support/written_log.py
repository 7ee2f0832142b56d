"""A real log that a test fills row group by row group, from the test's own thread."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock._kernels.batch import Sender
from penstock._kernels.topics import TopicTable
from penstock.model import Kind
from penstock.ports import Record, Storage
from penstock.protocols.herald import HERALD
from penstock.storage.arrow.format.file_names import LAST_MESSAGES, partition_folder
from penstock.storage.arrow.log import ArrowLog
from penstock.storage.options import LogOptions

START_US = 1_763_200_000_000_000
"""2025-11-15T09:46:40Z; the message at offset n came n milliseconds later."""
SECONDS_MAX = 10.0


def message(topic: str, value: bytes, offset: int = 0, **more: Any) -> Record:
    fields = {
        "protocol": HERALD,
        "kind": Kind.PUBLISH,
        "sender": Sender(bytes(16), 1000),
        "sender_name": "somebody",
        "timestamp_us": START_US + 1000 * offset,
    }
    return Record(topic=topic, value=value, **{**fields, **more})


class WrittenStorage:
    """A storage that is filled; it is closed at the end."""

    log: Storage

    def __init__(self, log: Storage) -> None:
        self._loop = asyncio.new_event_loop()
        self.log = log
        self._settled = asyncio.Event()
        self._open = True

        async def attach() -> None:
            self.log.attach(TopicTable(), self._settled.set)

        self._loop.run_until_complete(attach())

    def put(self, *messages: Record) -> None:
        """Have messages on disk, as one row group."""

        async def put() -> None:
            for each in messages:
                receipt = self.log.append_record(each)
            while self.log.durable_commit < receipt.commit:
                self._settled.clear()
                await asyncio.wait_for(self._settled.wait(), SECONDS_MAX)

        self._loop.run_until_complete(put())

    def put_many(self, count: int, *, rows: int = 3, topics: Sequence[str] = ("a", "b")) -> None:
        """Put `count` row groups of `rows` messages; topics take turns, values are their offsets."""
        for _ in range(count):
            first = self.log.next_offset
            self.put(
                *(
                    message(topics[offset % len(topics)], b"%d" % offset, offset)
                    for offset in range(first, first + rows)
                )
            )

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the threads of the log work until a condition is true."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.01)

        self._loop.run_until_complete(asyncio.wait_for(wait(), SECONDS_MAX))

    def close(self) -> None:
        if self._open:
            self._open = False
            self.log.close()
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class WrittenLog(WrittenStorage):
    """Holds the folder's lock like a broker, until it is closed."""

    log: ArrowLog

    def __init__(self, data: Path, *, segment_bytes_max: int = 1 << 28, **options: Any) -> None:
        self.data = data
        self.folder = partition_folder(data, 0)
        settings = LogOptions(segment_bytes_max=segment_bytes_max, **options)
        super().__init__(ArrowLog(data, settings))

    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.arrows"))


def contents(data: Path) -> dict[str, bytes]:
    """Every file below a folder, byte by byte, except for the record of last messages.

    A log writes that in the background.
    """
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and not path.name.startswith(LAST_MESSAGES)
    }


def flip(path: Path, position: int) -> None:
    """Turn one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
