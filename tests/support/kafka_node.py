"""`penstock serve` with its log on Kafka, as a process of its own."""

import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client.sync import SyncClient, connect_sync
from penstock.protocols.rheos2 import RHEOS2
from tests.support.running import Running
from tests.support.served import free_port

START_SECONDS = 120.0
TOPIC = "channel/7"
"""A topic that need not be created."""


class Node:
    """A broker as a process, with a node of a topic on Kafka."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        topic: str,
        number: int = 1,
        port: int | None = None,
        commit_seconds_max: int = 10,
        errors: Path | None = None,
        config: Path | None = None,
        **more: str,
    ) -> None:
        self.port = port or free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.http = f"127.0.0.1:{free_port()}"
        self.process = Running(
            "serve",
            *("--storage", f"kafka://{bootstrap}/{topic}?node={number}", "--data", folder),
            *("--listen", self.address, "--http", self.http),
            *(("--config", config) if config else ()),
            errors=errors,
            PENSTOCK_STORAGE__COMMIT_SECONDS_MAX=str(commit_seconds_max),
            **more,
        )

    def __enter__(self) -> Self:
        self.process.__enter__()
        started = time.monotonic()
        while True:
            try:
                if self.process.line() == "Ready.":
                    return self
            except AssertionError:  # a Kafka that has just started takes its time
                if (
                    self.process.popen.poll() is not None
                    or time.monotonic() > started + START_SECONDS
                ):
                    raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.__exit__(kind, error, trace)  # kill -9

    def connect(self) -> SyncClient:
        return connect_sync(self.address, protocol=RHEOS2, timeout=10)

    def readiness(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def history(self, count: int) -> list[bytes]:
        """The first messages of the log."""
        with self.connect() as client:
            stream = client.subscribe(f"{TOPIC}@earliest", timeout=20)
            return [next(stream).value for _ in range(count)]
