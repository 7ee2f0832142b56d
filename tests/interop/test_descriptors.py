"""A broker with few open files: idle clients do not take those of the log and of health checks."""

import contextlib
import http.client
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support import herald_bytes as herald
from tests.support.running import PENSTOCK, environment

FILES = 256
SECONDS_MAX = 20.0
CONFIG = """
data.folder = "data"
limits.connections_max = 5000
log.segment_bytes_max = 1048576
http.address = "127.0.0.1:0"
[[listener]]
url = "tcp://127.0.0.1:0"
"""


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, FILES))  # the soft limit is raised


@contextlib.contextmanager
def few_files(folder: Path) -> Iterator[tuple[int, int, int, Path]]:
    """Run a broker with FILES open files; give its pid, TCP port, HTTP port and log events."""
    config, events = folder / "penstock.toml", folder / "events"
    config.write_text(CONFIG)
    with events.open("wb") as stderr:
        process = subprocess.Popen(  # noqa: S603
            [*PENSTOCK, "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(),
            preexec_fn=_few_files,  # noqa: PLW1509
        )
        try:
            assert process.stdout is not None
            text = ""
            for line in process.stdout:
                text += line.decode()
                if line == b"Ready.\n":
                    break
            tcp = re.search(r"listen  tcp://127\.0\.0\.1:(\d+)", text)
            web = re.search(r"http    http://127\.0\.0\.1:(\d+)", text)
            assert tcp is not None
            assert web is not None, text
            yield process.pid, int(tcp[1]), int(web[1]), events
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def health(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


class Herald:
    """A herald client with a session, from an address of its own."""

    def __init__(self, port: int, handshake: bytes, *, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=5, source_address=(host, 0)
        )
        self.socket.sendall(handshake)
        self.accepted = self._exactly(16)[:8] == herald.frame(0x03, bytes(9))[:8]

    def _exactly(self, size: int) -> bytes:
        data = b""
        with contextlib.suppress(ConnectionError):
            while len(data) < size and (more := self.socket.recv(size - len(data))):
                data += more
        return data

    def publish(self, value: bytes, *, count: int) -> None:
        """Publish, and wait until the broker has processed all of it without an error."""
        for _ in range(count):
            self.socket.sendall(herald.publish(7, value))
        self.socket.sendall(herald.frame(0x20))
        assert self._exactly(7) == herald.frame(0x21)

    def close(self) -> None:
        self.socket.close()


def test_idle_clients_leave_descriptors_to_the_log_and_to_health_checks(tmp_path: Path) -> None:
    with few_files(tmp_path) as (pid, tcp, web, events), contextlib.ExitStack() as stack:

        def connect(host: str) -> socket.socket:
            made = socket.create_connection(("127.0.0.1", tcp), 5, source_address=(host, 0))
            return stack.enter_context(contextlib.closing(made))

        idle = [connect("127.0.0.1") for _ in range(300)]  # say nothing: they give way
        honest = stack.enter_context(contextlib.closing(Herald(tcp, herald.handshake_pub(7))))
        assert honest.accepted
        joined = [
            stack.enter_context(
                contextlib.closing(Herald(tcp, herald.handshake_sub(b"\x09", b"c%d" % number)))
            )
            for number in range(200)  # have a session: their address has no more than its share
        ]
        assert 50 < sum(each.accepted for each in joined) < 150
        other = stack.enter_context(
            contextlib.closing(Herald(tcp, herald.handshake_pub(7), host="127.0.0.2"))
        )
        assert other.accepted  # another address still has room
        for publisher in (honest, other):
            publisher.publish(bytes(500_000), count=3)
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < FILES - 32
        assert health(web, "/healthz") == 200
        assert health(web, "/readyz") == 200
        deadline = time.monotonic() + SECONDS_MAX
        while len(list((tmp_path / "data" / "log" / "0").glob("*.arrows"))) < 2:
            assert time.monotonic() < deadline, list(tmp_path.rglob("*"))
            honest.publish(bytes(500_000), count=3)  # until a segment is rolled
        assert idle
        for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
            mode = path.stat().st_mode & 0o777
            assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    text = events.read_text()
    assert "connections_max lowered" in text
    assert "too many connections of one address" in text
    assert "append failed" not in text
    assert "Too many open files" not in text
