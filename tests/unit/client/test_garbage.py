"""Whatever a broker sends, a session raises WireError or nothing."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.options import Credentials
from penstock.client.sessions import Session, session_factory
from penstock.client.sessions.base import Hook
from penstock.errors import WireError
from penstock.protocols import PROTOCOLS, Protocol
from penstock.wire.lamamq import HookType
from tests.support import fleximq_bytes as fx
from tests.support import herald_bytes as herald
from tests.support import lamamq_bytes as lama
from tests.support.rheos_bytes import PUBLISH, RHEOS2

ACK_1 = b"\xac" + bytes(17)
STREAMS = {
    PROTOCOLS["rheos1"]: ACK_1 * 3 + b"\x15\x03\x00\x00\x00" + bytes(16) + b"abc" + ACK_1,
    PROTOCOLS["rheos2"]: RHEOS2.request(PUBLISH, b"t", b"abc") * 2,
    PROTOCOLS["fleximq"]: fx.frame(fx.REP, 1000, fx.status(200))
    + fx.frame(fx.PUB, 1001, fx.topic("t"), fx.pack({"a": 1}))
    + fx.frame(fx.REQ, 1001, fx.routing((1000, "/")) | fx.request("x"))
    + fx.frame(fx.NOTIF, 1, fx.routing((1000, "/")) | fx.status(403), fx.pack("no"))
    + fx.frame(fx.PING, 1, fx.keepalive(1)),
    PROTOCOLS["herald"]: herald.frame(0x03, bytes(9))
    + herald.frame(0x13, bytes(12))
    + herald.PONG * 4,
    PROTOCOLS["lamamq"]: lama.OFFER
    + lama.answer(1, 2, b"no")
    + lama.forward(lama.BROKER_BIT, b"t", b"v", headers=[(b"penstock-hook", b"h")])
    + lama.answer(0, 1, b"x"),
}


def started(protocol: Protocol) -> Session:
    session = session_factory(protocol, Credentials())()
    session.start()
    return session


def survives(session: Session, data: bytes) -> None:
    session.feed(data)
    with contextlib.suppress(WireError):
        for _ in session.events():
            pass
    session.data_to_send()


@pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=lambda protocol: protocol.label)
@given(data=st.binary(max_size=200))
def test_any_bytes(protocol: Protocol, data: bytes) -> None:
    survives(started(protocol), data)


@pytest.mark.parametrize("protocol", list(PROTOCOLS), ids=lambda protocol: protocol.label)
@given(data=st.data())
def test_a_good_stream_with_some_bytes_changed(protocol: Protocol, data: st.DataObject) -> None:
    stream = bytearray(STREAMS[protocol])
    for _ in range(data.draw(st.integers(0, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    session = started(protocol)
    if protocol is not PROTOCOLS["fleximq"]:
        session.subscribe("channel/7")
    if protocol is PROTOCOLS["lamamq"]:
        session.register(Hook("h", HookType.CONNECT))
    survives(session, bytes(stream))
