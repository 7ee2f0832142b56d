"""Why an address cannot be had, and what to do about it."""

import errno
import socket
from typing import Final

from penstock.errors import CannotListen

__all__ = ["cannot_listen"]

_REMEDIES: Final = {
    errno.EADDRINUSE: ("another process listens there", "stop it or choose another port"),
    errno.EACCES: ("permission denied", "choose a port from 1024 on or give the process the right"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "use 127.0.0.1, 0.0.0.0 or its own"),
}


def cannot_listen(url: str, error: OSError) -> CannotListen:
    """Return what to tell of an address that cannot be had."""
    if isinstance(error, socket.gaierror):
        return CannotListen(url, "the name of the host is not known", "use an address instead")
    reason = (error.strerror or str(error)).lower()
    return CannotListen(url, *_REMEDIES.get(error.errno or 0, (reason, "choose another address")))
