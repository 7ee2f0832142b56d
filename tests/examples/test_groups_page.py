"""The program of docs/groups.md runs, and its numbers are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

from penstock import limits
from tests.support import lamamq_bytes as lama
from tests.support.live import LiveBroker

PAGE = (Path(__file__).parents[2] / "docs" / "groups.md").read_text()


def test_the_program_prints_messages_and_acknowledges_them(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with LiveBroker(data=tmp_path) as broker:
        with lama.client(broker) as sender:
            sender.request(lama.push(0, b"orders/1", b"two apples"))
        source = program.replace("127.0.0.1:7000", f"127.0.0.1:{broker.address[1]}")
        command = [sys.executable, "-u", "-c", source]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as running:  # noqa: S603
            assert running.stdout is not None
            assert running.stdout.readline() == b"orders/1 b'two apples'\n"
            groups = broker.server.broker.groups
            assert groups is not None
            broker.until(lambda: (found := groups.figures("billing")) and not found.unacknowledged)
            running.kill()


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"up to {limits.GROUP_PIECE_ROWS_MAX:,} at a time" in PAGE
    assert f"stored {limits.GROUP_SWEEP_SECONDS} s after" in PAGE
    assert f"the last {limits.GROUP_DEAD_MAX:,} dead letters" in PAGE
