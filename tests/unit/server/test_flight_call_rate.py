"""The rate of Flight calls: what is too much waits, in order, and addresses do not delay others."""

from collections.abc import Callable

from penstock.server.flight.call_rate import CallRate


class Loop:
    """A clock and timers."""

    def __init__(self) -> None:
        self.now = 10.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, run: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, run))

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and min(self.timers, key=lambda each: each[0])[0] <= end:
            timer = min(self.timers, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now = timer[0]
            timer[1]()
        self.now = end


class Client:
    """Begins calls one after the other, as a connection does."""

    def __init__(self, rate: CallRate, address: str, calls: int) -> None:
        self.rate, self.address, self.calls, self.begun = rate, address, calls, 0

    def go_on(self) -> None:
        while self.begun < self.calls:
            if not self.rate.begin(self.address):
                self.rate.wait(self.address, self.go_on)
                return
            self.begun += 1


def new_rate(loop: Loop) -> CallRate:
    return CallRate(lambda: loop.now, loop.later, per_second=40, per_address=10)


def test_an_address_begins_so_many_calls_per_second() -> None:
    loop = Loop()
    rate = new_rate(loop)
    greedy, other = Client(rate, "10.0.0.1", 1000), Client(rate, "10.0.0.2", 5)
    greedy.go_on()
    other.go_on()
    assert (greedy.begun, other.begun) == (10, 5), "others do not wait"
    loop.pass_by(2.0)
    assert 28 <= greedy.begun <= 31
    assert len(loop.timers) == 1


def test_all_addresses_share_what_there_is() -> None:
    loop = Loop()
    clients = [Client(rate := new_rate(loop), "10.0.0.0", 1000)]
    clients += [Client(rate, f"10.0.0.{number}", 1000) for number in range(1, 10)]
    for each in clients:
        each.go_on()
    assert sum(each.begun for each in clients) == 40
    loop.pass_by(10.0)
    begun = [each.begun for each in clients]
    assert 435 <= sum(begun) <= 441
    assert min(begun) > 20, begun


def test_connections_of_an_address_take_turns() -> None:
    loop = Loop()
    rate = new_rate(loop)
    clients = [Client(rate, "10.0.0.1", 1000) for _ in range(5)]
    for each in clients:
        each.go_on()
    loop.pass_by(5.0)
    assert all(each.begun >= 9 for each in clients[1:]), [each.begun for each in clients]


def test_what_has_left_is_not_called_again() -> None:
    loop = Loop()
    rate = new_rate(loop)
    client = Client(rate, "10.0.0.1", 1000)
    client.go_on()
    rate.leave("10.0.0.1", client.go_on)
    rate.leave("10.0.0.9", client.go_on)
    loop.pass_by(1.0)
    assert client.begun == 10
    assert not loop.timers


def test_an_address_cannot_be_forgotten_to_begin_more() -> None:
    loop = Loop()
    rate = new_rate(loop)
    client = Client(rate, "10.0.0.1", 10)
    client.go_on()
    rate.forget()
    assert not rate.begin("10.0.0.1")
    loop.pass_by(1.0)
    rate.forget()
    assert [rate.begin("10.0.0.1") for _ in range(11)] == [True] * 10 + [False]
