"""The program of docs/services.md runs, and its numbers are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import limits
from tests.support.live import LiveBroker

PAGE = (Path(__file__).parents[2] / "docs" / "services.md").read_text()


def test_the_program_prints_the_answer() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with LiveBroker() as broker:
        source = program.replace("127.0.0.1:7000", f"127.0.0.1:{broker.address[1]}")
        command = [sys.executable, "-c", source]
        done = subprocess.run(command, capture_output=True, timeout=20, check=True)  # noqa: S603
    assert done.stdout == b"b'12.50 for apples'\n"


@pytest.mark.parametrize("name", [name for name in dir(limits) if name.startswith("SERVICE")])
def test_the_limits_are_those_of_the_code(name: str) -> None:
    assert f"| `{name}` | {getattr(limits, name):,} |" in PAGE
    assert f"{limits.REQUEST_ID_BYTES_MAX:,} bytes at most" in PAGE
