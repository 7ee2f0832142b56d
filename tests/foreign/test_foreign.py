"""Clients that are not ours: other languages, written from the specifications alone.

A compiler or browser that is missing skips its tests, with the reason.
"""

import contextlib
import http.server
import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pytest

import penstock
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker

FOLDER = Path(__file__).parent
SECONDS_MAX = 60.0
COUNT = 50
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NUMBERS = [b"%d" % number for number in range(COUNT)]

Command = Callable[..., list[str]]
"""The words of a command: role, topic and count."""


def tool(*names: str) -> str:
    """The path of the first program that is there."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"{' or '.join(names)} is not installed")
    return found


def compiled(name: str, command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{name} does not compile: {done.stderr}"
    return command[command.index("-o") + 1]


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("foreign")


@pytest.fixture(scope="module")
def herald(broker: LiveBroker, built: Path) -> Command:
    compiler = [tool("g++", "c++"), "-std=c++17", "-Wall", "-Wextra", "-Werror"]
    program = compiled("herald", [*compiler, "-o", str(built / "herald"), "herald.cpp"], FOLDER)
    host, port = broker.address
    return lambda role, topic, count: [program, host, str(port), role, topic[8:], str(count)]


@pytest.fixture(scope="module", params=[1, 2])
def rheos(request: pytest.FixtureRequest, broker: LiveBroker, built: Path) -> Command:
    words = [tool("go"), "build", "-o", str(built / "rheos"), "main.go"]
    program = compiled("rheos", words, FOLDER / "rheos")
    host, port = broker.address
    return lambda role, topic, count: [
        program,
        str(request.param),
        f"{host}:{port}",
        role,
        topic,
        str(count),
    ]


@pytest.fixture(scope="module")
def lamamq(broker: LiveBroker, built: Path) -> Command:
    words = [tool("rustc"), "-D", "warnings", "-o", str(built / "lamamq"), "lamamq.rs"]
    program = compiled("lamamq", words, FOLDER)
    host, port = broker.address
    return lambda role, topic, count: [program, f"{host}:{port}", role, topic, str(count)]


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(  # noqa: S603
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def check_client(broker: LiveBroker, command: Command, topic: str) -> None:
    """What it publishes reaches a client of ours, and what that publishes reaches it."""
    host, port = broker.address
    url = f"tcp://{host}:{port}"
    with penstock.connect_sync(url, protocol="lamamq", name="ours") as ours:
        with ours.subscribe(topic, timeout=SECONDS_MAX) as stream:
            done = subprocess.run(  # noqa: S603
                command("pub", topic, COUNT),
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert [stream.get(SECONDS_MAX).value for _ in range(COUNT)] == NUMBERS
        with running(command("sub", topic, COUNT)) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            ours.publish_many(topic, NUMBERS)
            assert process.communicate(timeout=SECONDS_MAX) == (
                "".join(f"{number}\n" for number in range(COUNT)),
                "",
            )
            assert process.returncode == 0


def test_a_herald_client_in_cpp(broker: LiveBroker, herald: Command) -> None:
    check_client(broker, herald, "channel/9")


def test_a_rheos_client_in_go(broker: LiveBroker, rheos: Command) -> None:
    check_client(broker, rheos, "foreign/rheos")


def test_a_lamamq_client_in_rust(broker: LiveBroker, lamamq: Command) -> None:
    """It sends its key after its name, and answers every message it gets."""
    check_client(broker, lamamq, "foreign/lamamq")


# --- A page ---------------------------------------------------------------------------------------


class PageServer(http.server.ThreadingHTTPServer):
    """Serves the page, and takes what it saw."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PageHandler)
        self.seen: dict[str, object] | None = None


class PageHandler(http.server.SimpleHTTPRequestHandler):
    """The page, and nothing else."""

    server: PageServer

    def do_GET(self) -> None:
        if not self.path.startswith("/fleximq.html"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((FOLDER / "fleximq.html").read_bytes())

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.seen = json.loads(self.rfile.read(size))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.browser
def test_a_fleximq_client_in_a_page(tmp_path: Path) -> None:
    """Once broken: a WebSocket message held many fleximq messages, or a part of one."""
    browser = tool(*BROWSERS)
    with PageServer() as server, HttpBroker(data=tmp_path / "data") as broker:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}"
        address = broker.listen(f"ws://127.0.0.1:0/ws?origins={quote(origin, safe='')}")
        ws = quote(f"ws://127.0.0.1:{address.port}/ws", safe="")
        page = f"{origin}/fleximq.html?ws={ws}&topic=foreign/page&count={COUNT}"
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        words += [f"--user-data-dir={tmp_path / 'profile'}", page]
        with running(words):
            deadline = time.monotonic() + SECONDS_MAX
            while server.seen is None:
                assert time.monotonic() < deadline, "the page said nothing"
                time.sleep(0.05)
        server.shutdown()
        assert server.seen["error"] is None
        assert server.seen["messages"] == [f"page {number}" for number in range(COUNT)]
        assert server.seen["time"]
