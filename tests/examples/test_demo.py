"""`make demo` tells its whole story, and nothing of it is left."""

import queue
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.demo.broker import port_or_any
from examples.demo.topics import CHANNELS

from tests.support.running import environment
from tests.support.served import until

ROOT = Path(__file__).parents[2]
PROTOCOLS = ("herald", "rheos1", "rheos2", "fleximq", "lamamq")
STORY_SECONDS_MAX = 300.0
TALK_SECONDS_MAX = 60.0
END_SECONDS_MAX = 15.0
MARK = "DEMO_TEST_MARK"


class Demo:
    """The demo as a process, known by a mark in the environment of all that it starts."""

    def __init__(self, temporary: Path, *arguments: str, **more: str) -> None:
        temporary.mkdir()
        self._temporary = temporary
        self._mark = f"{MARK}={uuid.uuid4()}"
        name, value = self._mark.split("=")
        self.popen = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "examples.demo", "--any-port", *arguments],
            cwd=ROOT, env={**environment(**more), name: value, "TMPDIR": str(temporary)}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = ""
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._lines.put(line)
        self._lines.put("")

    def read_until(self, text: str, seconds_max: float) -> str:
        """Wait for a line with a text; return all that was said."""
        deadline = time.monotonic() + seconds_max
        while text not in self.said:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            assert line, self.said
            self.said += line
        return self.said

    def end(self, seconds_max: float) -> int:
        """Wait for its end; return the exit code."""
        code = self.popen.wait(seconds_max)
        self._reader.join(END_SECONDS_MAX)
        while line := self._lines.get(timeout=END_SECONDS_MAX):
            self.said += line
        return code

    def left(self) -> list[str]:
        """What is there of it: its processes, and files in the temporary folder."""
        found = [str(path) for path in self._temporary.iterdir()]
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append((place / "cmdline").read_text().replace("\0", " "))
            except (OSError, UnicodeDecodeError):
                continue
        return found

    def close(self) -> None:
        if self.popen.poll() is None:
            self.popen.terminate()
            self.popen.wait(END_SECONDS_MAX)
        assert self.popen.stdout is not None
        self._reader.join(END_SECONDS_MAX)
        self.popen.stdout.close()


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    return tmp_path / "t"


@pytest.fixture
def closing() -> Iterator[list[Demo]]:
    demos: list[Demo] = []
    yield demos
    for demo in demos:
        demo.close()


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The cells of the table that stands behind its title, by the first of each row."""
    _, _, found = text.partition(f"\n  {title}\n")
    lines = re.match(r"(?: {4}.*\n)+", found)
    assert lines is not None, text
    split = [re.split(r"\s{2,}", line.strip()) for line in lines[0].splitlines()]
    return {cells[0]: cells[1:] for cells in split}


@pytest.mark.spark
def test_the_whole_story_is_told_once_and_nothing_is_left(
    temporary: Path, closing: list[Demo]
) -> None:
    demo = Demo(temporary, "--once")
    closing.append(demo)
    code = demo.end(STORY_SECONDS_MAX)
    said = demo.said
    assert code == 0, said
    assert demo.left() == []

    received = rows(said, "messages received")
    for protocol in PROTOCOLS:
        assert received[protocol] == ["40", "40", "40", "3", "5"]
    assert '{"beer": "pils", "litres": 5} answered: {"euro": 16.0}' in said
    assert '{"beer": "cider", "litres": 8} refused: cider is not brewed here' in said
    assert "7 orders, 5 accepted and on disk." in said
    assert (
        '{"beer": "stout", "litres": 900} refused: there are 300 litres of stout, not 900' in said
    )

    traffic = rows(said, "gold/traffic")
    assert traffic["brewery/kettle/temp"][:2] == ["herald", "40"]
    assert traffic["brewery/cellar/climate"][:2] == ["rheos1", "40"]
    assert traffic["brewery/tank/temp"][:2] == ["rheos2", "40"]
    assert traffic["brewery/stock"][:2] == ["fleximq", "3"]
    assert traffic["brewery/orders"][:2] == ["lamamq", "5"]
    assert rows(said, "gold/latency")["/price"][:3] == [
        "12",
        "12",
        "0",
    ]  # asked, answered, unanswered
    assert {"kettle", "shop"} <= {cells[0] for cells in rows(said, "gold/sessions").values()}
    report = rows(said, "gold/report")
    assert report["brewery/kettle/temp"] == ["39", "64.9", "69.75"]

    letters = rows(said, "dead_letters")
    assert letters["brewery/kettle/temp"] == ["temps", "no signal", "no JSON object"]
    assert letters["brewery/cellar/climate"][2] == "humidity is no int: wet"
    assert letters["brewery/orders"][2] == "litres is missing"
    assert len(letters) == 1 + 3

    display = re.findall(r"A display received on herald channel 9: (.*)", said)
    assert ['"readings":39' in display[0], '"readings":40' in display[1]] == [True, True]
    assert "Clients of rheos1, rheos2, fleximq, lamamq received the same." in said


def test_without_java_the_rest_is_told_and_one_line_says_what_to_do(
    temporary: Path, closing: list[Demo]
) -> None:
    demo = Demo(temporary, "--once", PATH=str(temporary), JAVA_HOME="")
    closing.append(demo)
    assert demo.end(TALK_SECONDS_MAX) == 1
    problems = [line for line in demo.said.splitlines() if "Java" in line]
    assert len(problems) == 1
    assert "there is none in PATH: install Java 17" in problems[0]
    assert "5 accepted" in demo.said
    assert "gold/" not in demo.said
    assert demo.left() == []


@pytest.mark.spark
def test_it_stays_until_it_is_interrupted_and_its_commands_work_meanwhile(
    temporary: Path, closing: list[Demo]
) -> None:
    demo = Demo(temporary, PATH=str(temporary), JAVA_HOME="")
    closing.append(demo)
    said = demo.read_until("Ctrl-C stops everything", TALK_SECONDS_MAX)
    commands = [line for line in said.splitlines() if re.match(r"  \S+penstock ", line)]
    answers = [
        subprocess.run(  # noqa: S603
            shlex.split(command), cwd=ROOT, env=environment(), capture_output=True, text=True,
            timeout=TALK_SECONDS_MAX, check=False,
        )
        for command in commands
    ]  # fmt: skip
    history, order, price = answers
    assert history.stdout.count("brewery/") == 5
    assert order.returncode != 0
    assert "there are 300 litres of stout, not 900" in order.stderr
    assert price.stdout == '{"euro":6.4}\n'

    demo.popen.send_signal(signal.SIGINT)
    assert demo.end(END_SECONDS_MAX) == 0
    assert demo.left() == []


@pytest.mark.spark
def test_an_interrupt_while_spark_computes_ends_all_of_it(
    temporary: Path, closing: list[Demo]
) -> None:
    demo = Demo(temporary)
    closing.append(demo)
    demo.read_until("Spark starts", TALK_SECONDS_MAX)
    until(lambda: any("SparkSubmit" in each for each in demo.left()), "a JVM", seconds_max=60)
    demo.popen.send_signal(signal.SIGINT)
    assert demo.end(END_SECONDS_MAX) == 130
    assert "Traceback" not in demo.said
    assert demo.left() == []


def test_a_port_that_somebody_has_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        assert port_or_any(port) == 0
    assert port_or_any(port) == port


def test_the_broker_names_the_channels_as_the_program_does() -> None:
    config = tomllib.loads((ROOT / "examples" / "demo" / "penstock.toml").read_text())
    assert {int(number): name for number, name in config["herald"]["channels"].items()} == {
        number: name for name, number in CHANNELS.items()
    }


def test_make_demo_runs_it() -> None:
    done = subprocess.run(
        ["make", "-n", "demo", "ARGS=--once"],  # noqa: S607
        cwd=ROOT, capture_output=True, text=True, timeout=END_SECONDS_MAX, check=True,
        env=environment(),
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].split()[-3:] == ["-m", "examples.demo", "--once"]
