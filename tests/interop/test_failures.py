"""A kernel or a codec that fails takes down one connection, not the broker."""

from typing import Any

import pytest

from penstock.gateway import herald as herald_gateway
from penstock.wire import herald
from tests.support import herald_bytes as hb
from tests.support.live import LiveBroker


def assert_one_connection_fails(broker: LiveBroker, poison: bytes) -> None:
    with hb.subscriber(broker) as listener, hb.publisher(broker) as good:
        with hb.publisher(broker) as bad:
            bad.send(poison)
            bad.expect_close()
        good.send(hb.publish(7, b"goes on"))
        assert listener.message()[2] == b"goes on"
        failed = broker.call(lambda: broker.server.broker.counters.connections_failed)
        assert failed["internal error"] == 1


def test_a_kernel_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = herald_gateway.kernel.scan

    def failing(data: Any, *arguments: Any, **keywords: Any) -> int:
        if b"poison" in bytes(data):
            raise RuntimeError("a kernel broke")
        return scan(data, *arguments, **keywords)

    monkeypatch.setattr(herald_gateway.kernel, "scan", failing)
    with LiveBroker() as broker:
        assert_one_connection_fails(broker, hb.publish(7, b"poison"))


def test_a_codec_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    decode_at = herald.Decoder.decode_at

    def failing(self: herald.Decoder, data: Any, start: int) -> Any:
        if data[start : start + 3] == hb.PONG[:3]:
            raise ZeroDivisionError("a codec broke")
        return decode_at(self, data, start)

    monkeypatch.setattr(herald.Decoder, "decode_at", failing)
    with LiveBroker() as broker:
        assert_one_connection_fails(broker, hb.PONG)
