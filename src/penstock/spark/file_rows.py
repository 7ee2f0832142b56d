"""Rows of an Arrow file as the rows of a DataFrame."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["FileRows"]


class FileRows:
    """A function for `mapInArrow` that returns the rows of a file for each row that it gets.

    The file is opened when the task runs, so it may have other rows at each run of a query.
    """

    def __init__(self, file: str) -> None:
        self._file = file

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the file."""
        for _ in batches:
            with pa.memory_map(self._file) as file, pa.ipc.open_file(file) as reader:
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
