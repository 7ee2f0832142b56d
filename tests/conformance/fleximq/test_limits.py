"""Limits of headers and payloads that are settings."""

from penstock.conform.fleximq import encoding as fx
from penstock.gateway.options import GatewayOptions
from tests.conformance.fleximq.client import Client
from tests.support.live import LiveBroker


def test_limits_of_headers_and_payloads_are_settings() -> None:
    options = GatewayOptions(
        frame_limits={
            "fleximq_header_elements_max": 32,
            "fleximq_routing_entries_max": 2,
            "fleximq_reqrep_id_bytes_max": 26,
            "fleximq_payload_depth_max": 100,
        }
    )
    with LiveBroker(options=options) as live, Client(live.address) as client:
        client.subscribe("t")
        target = (client.number, "/")
        client.say(fx.NOTIF, fx.routing(target, target))
        client.frame()
        client.frame()
        client.say(fx.NOTIF, fx.routing(target, target, target))
        client.expect_notice(602)
        client.say(fx.PUB, fx.topic("t"), {"x": list(range(40))})
        client.expect_notice(400)
        client.say(fx.PUB, fx.topic("t"), {"x": list(range(20))})
        assert client.frame().type == fx.PUB
        client.say(fx.REQ, fx.routing((1, "/time")), fx.request("x" * 27))
        client.expect_notice(400)
        client.say(fx.REQ, fx.routing((1, "/time")), fx.request("x" * 26))
        assert client.frame().header["status"] == 200
        for depth, kind in ((100, fx.PUB), (101, fx.NOTIF)):
            client.say(fx.PUB, fx.topic("t"), payload=depth * b"\x91" + b"\xc0")
            assert client.frame().type == kind
        client.settle()
