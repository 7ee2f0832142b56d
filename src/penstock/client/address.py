"""Addresses of brokers: tcp, tls, ipc, ws and wss URLs, in the syntax of listeners, and stdio."""

import dataclasses
from typing import Final, Literal

from penstock.client.errors import InvalidAddress
from penstock.errors import BadAddress
from penstock.transport import addresses
from penstock.transport.ipc import resolve_path

__all__ = ["STDIO", "Address", "parse_address"]


_SCHEMES: Final = ("tcp", "tls", "ipc", "ws", "wss")


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """A parsed address; `host` and `port` are for tcp and tls, `path` is the socket file of ipc."""

    url: str
    scheme: addresses.Scheme | Literal["stdio"]
    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.url


STDIO: Final = Address("stdio://", "stdio")
"""The broker that started this program."""


def parse_address(url: str) -> Address:
    """Parse an address; raise InvalidAddress.

    `ipc://` takes an absolute path, or one relative to the system's temporary directory.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise InvalidAddress(url, "expected scheme://host:port, such as tcp://127.0.0.1:7000")
    if scheme not in _SCHEMES:
        raise InvalidAddress(url, f"clients connect by tcp, tls, ipc, ws and wss, not by {scheme}")
    if "?" in url:
        raise InvalidAddress(url, "options behind a ? are a listener's, not a client's")
    try:
        address = addresses.parse_address(url)
    except BadAddress as error:
        raise InvalidAddress(url, _problem(error.problem)) from None
    if address.scheme == "ipc":
        return Address(url, address.scheme, path=str(resolve_path(address.path)))
    if address.port == 0:
        raise InvalidAddress(url, "port 0 is no port to connect to")
    return Address(url, address.scheme, address.host, address.port, address.path)


def _problem(problem: str) -> str:
    """Return a problem without the advice that applies to listeners only."""
    fault, _, _ = problem.partition("; ")
    return fault if fault.endswith(" is missing") else problem
