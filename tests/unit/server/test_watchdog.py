"""The watchdog measures stalls of a real loop and names their cause."""

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
import structlog

from penstock.core.stalls import Stall, Stalls
from penstock.gateway.base import Gateway
from penstock.server.watchdog import Watchdog, _describe
from tests.support import lamamq_bytes as lm
from tests.support.http_live import HttpBroker
from tests.support.live import LiveBroker


def stalls_of(broker: LiveBroker) -> Stalls:
    found: Stalls = broker.call(lambda: broker.server.broker.stalls)
    return found


def burn(seconds: float) -> None:
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        pass


def test_a_stall_is_counted_with_its_length_its_processor_time_function_and_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def authorize_publish(_gateway: Gateway, *_: object) -> None:
        burn(0.2)

    found: list[Stall] = []

    def stalled() -> bool:
        last = broker.server.broker.stalls.last
        if last is not None and "_process_packet" in last.cause:
            found.append(last)
        return bool(found)

    with LiveBroker() as broker:
        peer = lm.client(broker)
        monkeypatch.setattr(Gateway, "authorize_publish", authorize_publish)
        monkeypatch.setattr(Gateway, "_publish_run", lambda *arguments: arguments[3])
        peer.send(lm.push(1, b"slow"))
        broker.until(stalled)
        name = "{}:{}".format(*peer.socket.getsockname())
        peer.socket.close()
    assert found[0].peer == name
    assert "authorize_publish" in found[0].cause or "_process_packet" in found[0].cause
    assert 0.1 < found[0].processor_seconds <= found[0].seconds


def test_waiting_is_told_from_working() -> None:
    with LiveBroker() as broker:
        broker.call(lambda: time.sleep(0.2))
        broker.until(lambda: broker.server.broker.stalls.count)
        stalls = stalls_of(broker)
    assert stalls.seconds_max > 0.1
    assert stalls.processor_seconds_max < 0.05


def test_one_stall_in_ten_seconds_is_logged_and_the_others_are_counted() -> None:
    with structlog.testing.capture_logs() as logged, LiveBroker() as broker:
        for count in range(1, 4):
            broker.call(lambda: time.sleep(0.12))
            broker.until(lambda count=count: broker.server.broker.stalls.count >= count)
    assert sum(each["event"] == "event loop stalled" for each in logged) == 1


def test_it_can_be_turned_off() -> None:
    with LiveBroker(stall_seconds=0) as broker:
        broker.call(lambda: time.sleep(0.1))
        assert stalls_of(broker) == Stalls()


def test_its_thread_has_ended_after_a_stop() -> None:
    async def watch() -> None:
        watchdog = Watchdog(Stalls(), interval_seconds=0.2)
        watchdog.start()
        assert "watchdog" in {each.name for each in threading.enumerate()}
        watchdog.stop()
        assert "watchdog" not in {each.name for each in threading.enumerate()}

    asyncio.run(watch())


def test_each_stall_is_in_one_bucket() -> None:
    stalls = Stalls()
    for seconds in (0.05, 0.06, 0.2, 11.0):
        stalls.add(Stall(seconds, seconds, "f", "", 1))
    assert stalls.buckets == [1, 1, 1, 0, 0, 0, 0, 0, 1]
    assert stalls.seconds == pytest.approx(11.31)


def test_metrics_and_stats_show_stalls() -> None:
    with HttpBroker() as broker:
        broker.call(lambda: time.sleep(0.12))
        broker.until(lambda: broker.server.broker.stalls.count)
        metrics = broker.get("/metrics").body.decode()
    found: dict[str, Any] = dict(
        line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("penstock_loop")
    )
    assert float(found["penstock_loop_stalls_total"]) >= 1
    assert float(found["penstock_loop_stall_seconds_max"]) > 0.05
    assert float(found['penstock_loop_stall_seconds_bucket{le="+Inf"}']) >= 1
    assert any(name.startswith("penstock_loop_last_stall_info{cause=") for name in found)


def test_the_cause_is_three_functions_of_the_broker_or_the_innermost_of_others() -> None:
    assert _describe(None) == ("", "")
    cause, _ = _describe(sys._getframe())
    assert cause == "test_the_cause_is_three_functions_of_the_broker_or_the_innermost_of_others"
    functions = "def a(): return b()\ndef b(): return c()\ndef c(): return d()\ndef d(): return f()"
    module = {"__name__": "penstock.made", "f": lambda: _describe(sys._getframe())}
    exec(functions, module)  # noqa: S102
    made: Any = module["a"]
    assert made()[0] == "penstock.made.d:4 < penstock.made.c:3 < penstock.made.b:2"
