"""Keep-alive of a client: PINGs while it is silent, and none after the checks stopped."""

from penstock.core.broker import Broker
from penstock.gateway.fleximq.keepalive import KeepAliveTimer
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock

SECONDS = 10.0


class Client:
    """A client that is silent from the start; `step` lets an interval pass."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.broker = Broker(log=MemoryLog(), clock=self.clock)
        self.heard = self.clock.monotonic()
        self.pings = 0
        self.timed_out = 0
        self.stops_at_ping = False
        self.timer = KeepAliveTimer(
            self.broker,
            seconds=SECONDS,
            misses_max=3,
            last_received=lambda: self.heard,
            send=self.ping,
            timed_out=self.time_out,
        )

    def ping(self, _frame: bytes) -> None:
        self.pings += 1
        if self.stops_at_ping:
            self.timer.stop()

    def time_out(self) -> None:
        self.timed_out += 1

    def step(self) -> tuple[int, int]:
        self.clock.seconds += SECONDS
        self.broker.timers.run_due()
        return self.pings, self.timed_out


def test_a_silent_client_gets_pings_and_then_is_timed_out() -> None:
    client = Client()
    assert [client.step() for _ in range(4)] == [(1, 0), (2, 0), (2, 1), (2, 1)]


def test_a_client_that_sends_is_checked_an_interval_later() -> None:
    client = Client()
    client.heard += SECONDS / 2
    assert client.step() == (0, 0)
    client.clock.seconds -= SECONDS / 2
    assert client.step() == (1, 0)


def test_a_connection_that_a_ping_ends_is_not_checked_again() -> None:
    client = Client()
    client.stops_at_ping = True
    assert [client.step() for _ in range(4)] == [(1, 0)] * 4


def test_a_suspended_client_is_checked_again_after_a_start() -> None:
    client = Client()
    client.timer.suspend()
    assert [client.step() for _ in range(4)] == [(0, 0)] * 4
    client.timer.start()
    assert [client.step() for _ in range(3)] == [(1, 0), (2, 0), (2, 1)]


def test_a_pong_answers_its_ping_and_those_before_it() -> None:
    client = Client()
    sent = []
    for _ in range(2):
        client.step()
        sent.append(client.clock.now_us() // 1000)
    assert not client.timer.answered(sent[0] + 1)
    assert client.timer.answered(sent[0])
    assert not client.timer.answered(sent[0])
    assert client.timer.answered(sent[1])
    client.heard = client.clock.monotonic()
    client.step()
    sent[0] = client.clock.now_us() // 1000
    client.step()
    assert client.timer.answered(client.clock.now_us() // 1000)
    assert not client.timer.answered(sent[0]), "a later one was answered"


def test_nothing_is_left_of_stopped_checks() -> None:
    client = Client()
    client.timer.stop()
    assert client.broker.timers.run_due() is None
