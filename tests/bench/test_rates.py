"""All systems that are compared run equally long."""

from bench.macro.rates import MESSAGES_FIRST, Rates


class System:
    """Carries so many messages a second, after a start that takes its time."""

    def __init__(self, per_second: float, start_seconds: float = 0.0) -> None:
        self.per_second = per_second
        self.start_seconds = start_seconds
        self.counts: list[int] = []

    def run(self, count: int) -> float:
        self.counts.append(count)
        return count / self.seconds(count)

    def seconds(self, count: int) -> float:
        return self.start_seconds + count / self.per_second


def test_a_fast_and_a_slow_system_run_for_the_least_time() -> None:
    rates = Rates(1.0)
    for number, system in enumerate((System(10_000_000, 0.1), System(25_000))):
        rates.take(number, system.run)
        assert 1.0 <= system.seconds(system.counts[-1]) < 1.5
        assert system.counts[0] == MESSAGES_FIRST


def test_later_rounds_begin_with_the_messages_that_last_long_enough() -> None:
    rates, system = Rates(1.0), System(1_000_000)
    rates.take("one", system.run)
    found = system.counts[-1]
    rates.take("one", system.run)
    assert system.counts[-2:] == [found, found]


def test_the_best_counts_but_not_that_of_a_short_run() -> None:
    rates = Rates(1.0, first=1_000)
    answers = iter((1e6, 2e5, 1e5))
    rates.take("one", lambda _: next(answers))
    assert rates.best == {"one": 2e5}
    rates.take("one", lambda _: next(answers))
    assert rates.best == {"one": 2e5}


def test_messages_are_a_multiple_of_the_unit() -> None:
    system = System(1_000_003)
    Rates(1.0).take("one", system.run, unit=70_000)
    assert len(system.counts) > 1
    assert all(count % 70_000 == 0 for count in system.counts)
