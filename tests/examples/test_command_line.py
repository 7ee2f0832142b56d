"""Every command of docs/command-line.md is run, and prints what the page says it prints.

Numbers that differ from run to run (ids, times, speeds) are compared by their form.
"""

import os
import queue
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from penstock.cli.main import command_line
from tests.support import herald_bytes as herald
from tests.support.commands import Commands
from tests.support.live import LiveBroker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECONDS_MAX = 30
FORMS = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r'"sender":"\d+"', '"sender":"CLIENT"'),
    (r'"timestamp":\d+', '"timestamp":N'),
    (r" {2,}[\d.,]{2,}", "  N"),
)


class Shell:
    """Runs the page's commands one after the other; what stands before a `&` goes on meanwhile.

    What needs no shell runs in this process, which is faster.
    """

    def __init__(self, folder: Path, url: str, commands: Commands) -> None:
        self._folder = folder
        self._commands = commands
        tools = folder / "bin"
        tools.mkdir()
        penstock = tools / "penstock"
        penstock.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m penstock.cli "$@"\n')
        penstock.chmod(0o755)
        plain = {key: text for key, text in os.environ.items() if not key.startswith("PENSTOCK_")}
        self._environment = {
            **plain, "PATH": f"{tools}:{plain['PATH']}", "PENSTOCK_URL": url,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }  # fmt: skip
        self._going_on: list[subprocess.Popen[str]] = []
        self._identities: dict[str, str] = {}

    def run(self, command: str) -> str:
        """Return what a command prints; ids that the page knows stand for those of this run."""
        for said, real in self._identities.items():
            command = command.replace(said, real)
        if command.endswith(" &"):
            return self._start(command.removesuffix(" &"))
        name, *arguments = shlex.split(command)
        if name == "penstock" and arguments[0] != "bench" and not set(arguments) & {"|", ">", "<"}:
            ended = self._commands.run(*arguments)
            return ended.out + ended.err
        done = subprocess.run(  # noqa: S602
            command, shell=True, cwd=self._folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        return done.stdout

    def _start(self, command: str) -> str:
        process = subprocess.Popen(  # noqa: S602
            f"exec {command}", shell=True, cwd=self._folder, env=self._environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._going_on.append(process)
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        threading.Thread(
            target=lambda pipe: lines.put(pipe.readline()), args=(process.stdout,)
        ).start()
        return lines.get(timeout=SECONDS_MAX)

    def learn(self, said: str, printed: str) -> str:
        """Note which client is meant by an id of the page; return what was printed, with that."""
        for mine, other in zip(
            re.findall(r"client (\d+) answers", said),
            re.findall(r"client (\d+) answers", printed),
            strict=True,
        ):
            self._identities[mine] = other
            printed = printed.replace(f"client {other} answers", f"client {mine} answers")
        return printed

    def close(self) -> None:
        for process in self._going_on:
            process.terminate()
            process.wait(SECONDS_MAX)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def shell(tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with LiveBroker(data=tmp_path / "data") as broker:
        host, port = broker.address
        url = f"tcp://{host}:{port}"
        monkeypatch.chdir(tmp_path)
        for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PENSTOCK_URL", url)
        opened = Shell(tmp_path, url, commands)
        try:
            yield opened
        finally:
            opened.close()


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with its output."""
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = step.partition("\n")
        yield command, output


def form(text: str) -> str:
    for pattern, name in FORMS:
        text = re.sub(pattern, name, text)
    return text


def test_warnings_of_the_broker_are_not_output_of_a_command(shell: Shell) -> None:
    printed = shell.run("penstock --version")
    stopping = threading.Event()

    def warn() -> None:
        while not stopping.wait(0.0005):
            structlog.get_logger("penstock.watchdog").warning("event loop stalled")

    thread = threading.Thread(target=warn)
    thread.start()
    try:
        assert [shell.run("penstock --version") for _ in range(5)] == [printed] * 5
    finally:
        stopping.set()
        thread.join(SECONDS_MAX)


def test_every_command_prints_what_the_page_says(shell: Shell) -> None:
    assert BLOCKS
    for block in BLOCKS:
        for command, output in steps(block):
            printed = shell.learn(output, shell.run(command))
            assert form(printed) == form(output), command


def test_a_case_that_fails_shows_what_the_page_says(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(SECONDS_MAX)

        def ping_back() -> None:
            """Let herald clients in, and answer the first PING with a PING."""
            asked = False
            while not asked:  # earlier ones find out whether there is a server that lets them in
                peer, _ = server.accept()
                with peer, peer.makefile("rb") as received:
                    if head := received.read(7):
                        received.read(int.from_bytes(head[3:], "little"))
                        peer.sendall(herald.frame(0x03, bytes(9)))  # HANDSHAKE_ACK
                        if asked := bool(ping := received.read(7)):
                            peer.sendall(ping)
                            received.read()

        thread = threading.Thread(target=ping_back)
        thread.start()
        url = f"herald://127.0.0.1:{server.getsockname()[1]}"
        done = Commands(capfd, monkeypatch).run("conform", url, "--case", "ping-is-answered")
        thread.join(SECONDS_MAX)
    assert done.code == 1
    assert done.out.startswith(shown)


def test_every_command_is_on_the_page() -> None:
    names = set(command_line().commands)
    assert {name for name in names if f"`{name}`" not in PAGE} == set()


def test_every_section_that_the_page_links_to_is_there() -> None:
    headings = {line[3:].lower() for line in PAGE.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\]\(#([a-z]+)\)", PAGE)) <= headings
