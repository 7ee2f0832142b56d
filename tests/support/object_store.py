"""A local S3 server, with one bucket for each test."""

import contextlib
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import IO

import pytest

SECONDS_MAX = 100.0
_numbers = itertools.count()


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """Run moto's server; yield its endpoint.

    It is a process of its own: some calls of deltalake hold the GIL while they wait for it.
    """
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with tempfile.TemporaryFile() as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603
        try:
            yield _endpoint(server, output)
        finally:
            server.kill()
            server.wait()


def _endpoint(server: subprocess.Popen[bytes], output: IO[bytes]) -> str:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        written = os.pread(output.fileno(), 1 << 16, 0).decode()
        found = re.search(r"Running on (http://127.0.0.1:\d+)", written)
        if found:
            return found[1]
        assert server.poll() is None, written
        assert time.monotonic() < deadline, written
        time.sleep(0.02)


def environment(endpoint: str) -> dict[str, str]:
    """The variables by which pyarrow and deltalake find the server."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def new_bucket(endpoint: str) -> str:
    """Create a bucket; return its URL."""
    name = f"bucket-{next(_numbers)}"
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")  # noqa: S310
    with urllib.request.urlopen(request):  # noqa: S310
        return f"s3://{name}"


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty bucket; the environment names its server."""
    for name, value in environment(s3_endpoint).items():
        monkeypatch.setenv(name, value)
    return new_bucket(s3_endpoint)
