"""Streams whose bytes were written by hand or by the independent encoders: what each side sends."""

import itertools
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.decode.capture import Connection, Piece
from penstock.decode.connection import explain
from penstock.decode.findings import Finding
from penstock.model import ByteOrder
from penstock.protocols import PROTOCOLS, Protocol
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.rheos_bytes import ALICE, BOB, RHEOS1, RHEOS2

PAGES = Path(__file__).parents[3] / "docs" / "protocols"
MARK = re.compile(
    r"^<!-- (client|broker|connection): ([^\n]+) -->$(?:\n```hex\n(.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Stream(NamedTuple):
    """What one side of a connection sends; `frames` are its parts."""

    protocol: Protocol
    order: ByteOrder
    from_client: bool
    frames: tuple[bytes, ...]

    @property
    def data(self) -> bytes:
        return b"".join(self.frames)

    def __str__(self) -> str:
        side = "client" if self.from_client else "server"
        return f"{self.protocol.label}-{self.order}-{side}-{len(self.frames)}"


def page_streams() -> Iterator[Stream]:
    """The sessions of the protocol pages."""
    for protocol in PROTOCOLS:
        page = (PAGES / f"{protocol.label}.md").read_text()
        connections: list[tuple[ByteOrder, dict[str, list[bytes]]]] = []
        for mark, claim, block in MARK.findall(page):
            if mark == "connection":
                order: ByteOrder = "big" if claim.endswith("big") else "little"
                connections.append((order, {"client": [], "broker": []}))
            else:
                digits = "".join(line.partition("#")[0] for line in block.splitlines())
                connections[-1][1][mark].append(bytes.fromhex(digits))
        for order, sides in connections:
            for side, frames in sides.items():
                yield Stream(protocol, order, side == "client", tuple(frames))


def made_streams() -> Iterator[Stream]:
    """Every kind of frame that the pages lack."""
    for order, mark in (("little", "<"), ("big", ">")):
        yield Stream(
            PROTOCOLS["herald"],
            order,  # type: ignore[arg-type]
            from_client=False,
            frames=(
                herald.frame(0x03, b"\x00" + struct.pack(f"{mark}Q", 77), order=mark),
                herald.frame(0x13, b"\x07" + struct.pack(f"{mark}Q", 5) + b"hi", order=mark),
                *(herald.error(code, order=mark) for code in range(1, 9)),
                herald.frame(0x20, order=mark),
                herald.frame(0x21, order=mark),
                herald.frame(0x04, order=mark),
            ),
        )
        yield Stream(
            PROTOCOLS["lamamq"],
            order,  # type: ignore[arg-type]
            from_client=True,
            frames=(
                lama.authentication(b"name", b"a key", order=mark),
                lama.CHOICE,
                lama.push(1, b"a/b", b"", kind=lama.EMPTY, order=mark),
                lama.push(2, b"a/b", b"\xff", headers=[(b"k", b"v"), (b"", b"\xfe")], order=mark),
                lama.subscribe(3, b"a/+", order=mark),
                lama.unsubscribe(4, b"a/+", order=mark),
                lama.register(
                    5, b"hook", lama.PUSHED, lama.header_is(b"h", b"v", order=mark), order=mark
                ),
                lama.register(6, b"other", lama.CONNECT, order=mark),
                lama.unregister(7, b"hook", order=mark),
                lama.answer(0x8000_0001, 4, b"no", order=mark),
            ),
        )
    yield Stream(
        PROTOCOLS["fleximq"],
        "big",
        from_client=True,
        frames=(
            fx.frame(fx.JOIN, 0, {"auth": {"type": "basic", "username": "u", "password": "p"}}),
            fx.frame(fx.PUB, 1000, fx.topic("t") | fx.routing((1001, "/x")), fx.pack({"a": [1]})),
            fx.frame(fx.NOTIF, 1000, fx.routing((1, "/a"), (2, "/b")), fx.pack(b"bin")),
            fx.frame(fx.BCAST, 1000, fx.status(200), fx.pack("all")),
            fx.frame(fx.PUB, 1000, fx.topic("t") | {"later": {"x": [None, 1.5, True]}}, b"\xc0"),
            fx.frame(fx.UNSUB, 1000, fx.topic("t"), reserved=bytes(range(16))),
            fx.frame(fx.PING, 1000, fx.keepalive(2**64 - 1, interval=30)),
            fx.frame(fx.PONG, 1000, fx.keepalive(0)),
        ),
    )
    for rheos, protocol in ((RHEOS1, PROTOCOLS["rheos1"]), (RHEOS2, PROTOCOLS["rheos2"])):
        yield Stream(
            protocol,
            "little",
            from_client=True,
            frames=(
                rheos.request(0, b"plant/temp"),
                rheos.request(1, b"plant/temp", client=BOB),
                rheos.request(2, b"\xff\xfe", bytes(range(256))),
                rheos.request(2, b"plant/temp", b"", client=ALICE),
            ),
        )


STREAMS = [*page_streams(), *made_streams()]


def findings(
    data: bytes,
    stream: Stream | None = None,
    *,
    protocol: Protocol | None = None,
    from_client: bool | None = None,
    cuts: tuple[int, ...] = (),
) -> list[Finding]:
    """What is found in one side of a connection, fed in pieces."""
    ends = [0, *cuts, len(data)]
    pieces = [Piece(forward=True, data=data[a:b]) for a, b in itertools.pairwise(ends) if a < b]
    if stream is not None:
        protocol, from_client = stream.protocol, stream.from_client
    order = None if stream is None else stream.order
    return list(
        explain(
            Connection("test", pieces=pieces),
            1,
            protocol=protocol,
            order=order,
            from_client=from_client,
        )
    )
