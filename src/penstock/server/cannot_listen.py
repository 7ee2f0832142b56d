"""Errors of a listener's address, with advice."""

import errno
import socket
from typing import Final

from penstock.errors import CannotListen

__all__ = ["cannot_listen"]

_REMEDIES: Final = {
    errno.EADDRINUSE: ("another process listens there", "stop it or choose another port"),
    errno.EACCES: (
        "permission denied",
        "choose a port from 1024 up, or allow the process to bind it",
    ),
    errno.EADDRNOTAVAIL: (
        "this machine has no such address",
        "use 127.0.0.1, 0.0.0.0 or an address of this machine",
    ),
}


def cannot_listen(url: str, error: OSError) -> CannotListen:
    """Return the error of an address that cannot be bound."""
    if isinstance(error, socket.gaierror):
        return CannotListen(url, "unknown host name", "use an IP address")
    reason = (error.strerror or str(error)).lower()
    return CannotListen(url, *_REMEDIES.get(error.errno or 0, (reason, "choose another address")))
