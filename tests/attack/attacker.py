"""An attacker: its address, its connections, the turn it is in, and the list of all attacks.

An attack is a function of an `Attacker`. It ends by itself, at the latest when `attacker.going` is
false. The broker may refuse, cut or ignore it: OSError and errors of Flight are what is expected.
"""

import contextlib
import dataclasses
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.flight as pf

from penstock.conform.fleximq import encoding as fx
from penstock.conform.lamamq import encoding as lm
from tests.attack.honest import MARK

KIB, MIB = 1 << 10, 1 << 20
TURN_SECONDS: Final = 5.0
"""An attack gives way to the next one after this time."""
ADDRESSES: Final = 5
"""Attackers come from this many addresses."""
READ_BYTES: Final = 256 * KIB


class Target(msgspec.Struct, frozen=True):
    """Where the broker listens, and credentials of a principal that may use `attack/#` only."""

    tcp: tuple[str, int]
    tls: tuple[str, int]
    udp: tuple[str, int]
    http: tuple[str, int]
    flight: str
    token: str
    limited_token: str
    """Credentials of another one, which has quotas too."""


@dataclasses.dataclass(slots=True)
class Report:
    """What the attackers did."""

    runs: Counter[str] = dataclasses.field(default_factory=Counter)
    acts: Counter[str] = dataclasses.field(default_factory=Counter)
    leaks: list[str] = dataclasses.field(default_factory=list)
    crashes: list[str] = dataclasses.field(default_factory=list)


class Attacker:
    """One attacker: its address, its connections, and the turn it is in."""

    def __init__(self, number: int, target: Target, report: Report, chance: random.Random) -> None:
        self.number = number
        self.epoch = 0
        """The next one of its writer of Flight."""
        self.target = target
        self.report = report
        self.chance = chance
        self.address = f"127.0.1.{1 + number % ADDRESSES}"
        self.attack = ""
        self.end = 0.0
        self._sockets: list[socket.socket] = []

    @property
    def going(self) -> bool:
        return time.monotonic() < self.end

    def acted(self, count: int = 1) -> None:
        self.report.acts[self.attack] += count

    def connect(self, place: tuple[str, int] | None = None) -> socket.socket:
        """Connect from the attacker's address; the socket is closed when the turn ends."""
        found = socket.create_connection(
            place or self.target.tcp, timeout=2.0, source_address=(self.address, 0)
        )
        self._sockets.append(found)
        return found

    def join_fleximq(self, *, token: str | None = None) -> tuple[socket.socket, int]:
        """Join; return the connection and the client id."""
        peer = self.connect()
        header = {"auth": {"type": "token", "token": token}} if token else b""
        peer.sendall(fx.frame(fx.JOIN, 0, header))
        base = self.read(peer, 26)
        if len(base) < 26:
            raise ConnectionAbortedError("no answer to JOIN")
        number = int(struct.unpack_from(">I", base, 2)[0])
        self.read(peer, fx.header_length(base) + 8)
        return peer, number

    def join_lamamq(self) -> socket.socket:
        peer = self.connect()
        peer.sendall(lm.authentication(b"attacker-%d" % self.chance.getrandbits(32)) + lm.CHOICE)
        return peer

    def join_herald(self, handshake: bytes) -> socket.socket:
        peer = self.connect()
        peer.sendall(handshake)
        return peer

    def read(self, peer: socket.socket, size: int) -> bytes:
        """Read up to `size` bytes, until they are there or the broker says no more."""
        found = b""
        while len(found) < size:
            more = peer.recv(size - len(found))
            if not more:
                break
            found += more
        self.look(found)
        return found

    def drain(self, peer: socket.socket, seconds: float = 0.2) -> bytes:
        """Read what comes for a while."""
        found = b""
        end = min(time.monotonic() + seconds, self.end)
        peer.settimeout(max(0.01, seconds))
        with contextlib.suppress(OSError):
            while time.monotonic() < end and len(found) < 4 * MIB:
                more = peer.recv(READ_BYTES)
                if not more:
                    break
                found += more
        peer.settimeout(2.0)
        self.look(found)
        return found

    def look(self, found: bytes) -> None:
        """Report a leak if bytes of an honest client are among these."""
        if MARK in found:
            self.report.leaks.append(f"{self.attack}: {found[:200]!r}")

    def leave(self) -> None:
        for each in self._sockets:
            if self.chance.random() < 0.5:
                with contextlib.suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.close()
        self._sockets.clear()

    def run(self, attacks: list[Callable[["Attacker"], None]], end: float) -> None:
        """Do `attacks` in turn, in an order of its own, until the end."""
        while time.monotonic() < end:
            self.chance.shuffle(attacks)
            for each in attacks:
                self.end = min(end, time.monotonic() + TURN_SECONDS)
                if not self.going:
                    return
                self.attack = each.__name__
                self.report.runs[self.attack] += 1
                try:
                    each(self)
                except (OSError, pa.ArrowException, pf.FlightError):
                    pass  # refused or cut: as it should be
                except Exception as error:  # noqa: BLE001
                    self.report.crashes.append(f"{self.attack}: {error!r}")
                finally:
                    self.leave()
                time.sleep(min(0.1, max(0.0, self.end - time.monotonic())))


ATTACKS: list[Callable[[Attacker], None]] = []


def attack(function: Callable[[Attacker], None]) -> Callable[[Attacker], None]:
    ATTACKS.append(function)
    return function
