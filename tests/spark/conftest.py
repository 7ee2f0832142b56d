"""A log to read."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.written_log import WrittenLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """A log of small segments that is being written."""
    with WrittenLog(tmp_path / "data", segment_bytes_max=32_768) as written:
        yield written
