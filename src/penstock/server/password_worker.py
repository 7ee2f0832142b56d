"""Verifies passwords in a process of its own: `python -m penstock.server.password_worker`.

The broker starts it. A verification takes tens of milliseconds of a processor and 64 MiB, and has
a low priority. In a thread of the broker it would hold the interpreter lock at that priority each
time it begins and ends, and all clients would wait for it.

Standard input is a socket: a request comes in by it, the answer goes out by it. A request is

    0        2        4
    ┌────────┬────────┬──────┬──────────┐
    │ a      │ b      │ hash │ password │    a, b: bytes of the hash and of the password, big endian
    └────────┴────────┴──────┴──────────┘

and an answer is one byte. Passwords are in no argument and no variable of the environment. The
process ends when the broker does: then the socket is at its end.
"""

import contextlib
import os
import resource
import signal
import socket
import struct
import sys
from typing import Final

import argon2

from penstock.limits import VERIFICATION_NICENESS

__all__ = ["HEAD", "RIGHT", "UNKNOWN", "WRONG", "encode_request"]

HEAD: Final = struct.Struct(">HH")
RIGHT: Final = b"+"
WRONG: Final = b"-"
UNKNOWN: Final = b"?"
"""The password could not be verified, such as for want of memory."""


def encode_request(encoded: str, password: bytes) -> bytes:
    """Return the request to compare a password with a hash."""
    hash_bytes = encoded.encode()
    return HEAD.pack(len(hash_bytes), len(password)) + hash_bytes + password


def verify(encoded: str, password: bytes) -> bytes:
    """Return the answer to a request."""
    try:
        argon2.PasswordHasher().verify(encoded, password)
    except argon2.exceptions.VerifyMismatchError:
        return WRONG
    except (argon2.exceptions.Argon2Error, argon2.exceptions.InvalidHash, MemoryError):
        return UNKNOWN
    return RIGHT


def main() -> None:
    """Answer requests until the broker ends."""
    # Signals to the process group, or to all processes of a service, are the broker's: it lets
    # clients that log in finish, and then closes the socket.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it has passwords in its memory
    os.nice(VERIFICATION_NICENESS)
    with (
        socket.socket(fileno=sys.stdin.fileno()) as channel,
        channel.makefile("rb") as requests,
        contextlib.suppress(OSError),
    ):
        while len(head := requests.read(HEAD.size)) == HEAD.size:
            hash_size, password_size = HEAD.unpack(head)
            encoded, password = requests.read(hash_size), requests.read(password_size)
            channel.sendall(verify(encoded.decode(), password))


if __name__ == "__main__":
    main()
