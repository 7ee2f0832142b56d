"""A local S3 server, with one bucket for each test."""

import contextlib
import itertools
import urllib.request
from collections.abc import Iterator

import pytest

_numbers = itertools.count()


@contextlib.contextmanager
def s3_server(port: int = 0) -> Iterator[str]:
    """Run moto's server; yield its endpoint."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415  (slow)

    server = ThreadedMotoServer("127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


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
