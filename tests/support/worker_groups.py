"""Groups of tests for the workers of xdist: one worker runs a group, one test after another.

`--dist loadgroup` of pytest-xdist 3.8 does not group tests of pytest 9.2: it writes groups into an
attribute of pytest that is gone. So workers write the groups to a file, and the scheduler of the
controller, which does not collect tests, reads them.
"""

import json
import os
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


def write_groups(file: Path, groups: dict[str, str]) -> None:
    """Write the group of each test; each worker does, and all write the same."""
    own = file.with_suffix(f".{os.getpid()}")
    own.write_text(json.dumps(groups))
    own.replace(file)


class GroupScheduling(LoadScopeScheduling):
    """Hand out groups in the order of their first tests."""

    def __init__(self, config: pytest.Config, log: Producer | None, file: Path) -> None:
        config.option.loadscopereorder = False  # else groups of many tests are first
        super().__init__(config, log)
        self._file = file
        self._groups: dict[str, str] = {}

    def schedule(self) -> None:
        """Begin when all workers have collected their tests, and written the groups."""
        if not self._groups:
            self._groups = json.loads(self._file.read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]
