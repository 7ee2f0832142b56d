"""The record of last messages: `last-messages.arrow`, an Arrow stream of one batch.

It has the last message of each topic in the closed segments between two offsets, so that a search
reads only what is behind them. It is an optimization: a file that is missing, damaged or of another
log is not used.
"""

from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels.crc32c import crc32c
from penstock.limits import LAST_RECORD_NAMES_BYTES_MAX, LAST_RECORD_TOPICS_MAX
from penstock.storage.arrow.format.file_names import LAST_MESSAGES
from penstock.storage.files import Files

__all__ = ["LastMessages", "StaleLastMessages", "load_last_messages", "save_last_messages"]

FORMAT: Final = "1"
_SCHEMA: Final = pa.schema([("topic", pa.large_utf8()), ("offset", pa.int64())])
_MARK: Final = b"crc32c="
_ZEROS: Final = b"00000000"


class StaleLastMessages(ValueError):
    """A file that was changed or cannot be parsed."""


class LastMessages(NamedTuple):
    """The last message from offset `start` up to `end` of each topic that has one.

    Only messages that subscribers get are counted. A segment ends at `end`; `last_crc` is the
    checksum of its last row group, as in its index.
    """

    start: int
    end: int
    last_crc: int
    messages: pa.Table

    @classmethod
    def none_from(cls, start: int) -> Self:
        """Return a record that has no messages yet."""
        return cls(start, start, 0, _SCHEMA.empty_table())

    def followed_by(
        self, topics: pa.StringArray, offsets: pa.Array, *, end: int, last_crc: int, horizon: int
    ) -> Self:
        """Return a record with the last messages from its end up to `end`.

        Messages below `horizon` are left out, and those with the lowest offsets if there are too
        many topics.
        """
        new = pa.table([pc.cast(topics, pa.large_utf8()), offsets], schema=_SCHEMA)
        joined = pa.concat_tables([self.messages, new]).group_by("topic", use_threads=False)
        found = joined.aggregate([("offset", "max")]).rename_columns(_SCHEMA.names)
        found = found.filter(pc.greater_equal(found.column("offset"), horizon))
        start = self.start
        if (
            len(found) > LAST_RECORD_TOPICS_MAX
            or pc.sum(pc.binary_length(found.column("topic"))).as_py() > LAST_RECORD_NAMES_BYTES_MAX
        ):
            found = found.sort_by([("offset", "descending")])
            sizes = pc.cumulative_sum(pc.cast(pc.binary_length(found.column("topic")), pa.int64()))
            fitting = pc.sum(pc.less_equal(sizes, LAST_RECORD_NAMES_BYTES_MAX)).as_py()
            found = found.slice(0, min(fitting, LAST_RECORD_TOPICS_MAX))
            start = found.column("offset")[-1].as_py()
        return self._replace(start=start, end=end, last_crc=last_crc, messages=found)


def save_last_messages(files: Files, folder: Path, last: LastMessages) -> int:
    """Write the record; it is on disk when this returns. Return its size in bytes."""
    schema = _SCHEMA.with_metadata(
        {
            "penstock.last_messages_format": FORMAT,
            "penstock.start": str(last.start),
            "penstock.end": str(last.end),
            "penstock.last_crc": str(last.last_crc),
            "penstock.crc32c": (_MARK + _ZEROS).decode(),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        columns = [column.combine_chunks() for column in last.messages.columns]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    data = bytearray(sink.getvalue())
    place = data.index(_MARK) + len(_MARK)
    data[place : place + len(_ZEROS)] = f"{crc32c([data]):08x}".encode()
    files.replace(folder / LAST_MESSAGES, data)
    return len(data)


def load_last_messages(files: Files, folder: Path) -> tuple[LastMessages, int] | None:
    """Read the record of a partition and its size in bytes; None without a file.

    Raise StaleLastMessages or OSError.
    """
    path = folder / LAST_MESSAGES
    try:
        data = files.read(path, 0, files.size(path))
    except FileNotFoundError:
        return None
    try:
        place = data.index(_MARK) + len(_MARK)
        view = memoryview(data)
        checksum = crc32c([view[:place], _ZEROS, view[place + len(_ZEROS) :]])
        if int(data[place : place + len(_ZEROS)], 16) != checksum:
            raise StaleLastMessages(f"{path} is not what was written")
        with pa.ipc.open_stream(data) as reader:
            metadata = reader.schema.metadata
            if metadata[b"penstock.last_messages_format"] != FORMAT.encode():
                raise StaleLastMessages(f"{path} has another format")
            messages = pa.Table.from_batches([reader.read_next_batch()])
        last = LastMessages(
            start=int(metadata[b"penstock.start"]),
            end=int(metadata[b"penstock.end"]),
            last_crc=int(metadata[b"penstock.last_crc"]),
            messages=messages.replace_schema_metadata(None),
        )
        return last, len(data)
    except (ValueError, KeyError, IndexError, StopIteration, pa.ArrowException) as error:
        if isinstance(error, StaleLastMessages):
            raise
        raise StaleLastMessages(f"{path} cannot be read: {error}") from error
