"""A warehouse to try things with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.config import WarehouseConfig
from penstock.pipeline.warehouse import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse(WarehouseConfig(folder=str(tmp_path / "warehouse"))) as found:
        yield found
