"""An allowance lets a steady rate through, and a burst of one second's worth."""

from penstock.core.rates import Allowance


def test_a_burst_then_the_rate() -> None:
    allowance = Allowance(100, 0.0)
    assert allowance.left(0.0, most=1000) == 100
    assert allowance.left(0.0, most=7) == 7
    allowance.take(100)
    assert allowance.left(0.0, most=1000) == 0
    assert allowance.wait_seconds() == 0.01
    assert allowance.left(0.01, most=1000) == 1
    assert allowance.left(0.5, most=1000) == 50
    assert allowance.left(60.0, most=1000) == 100


def test_no_limit_allows_any_number() -> None:
    allowance = Allowance(None, 0.0)
    allowance.take(10**9)
    assert allowance.left(0.0, most=65_536) == 65_536
    assert allowance.wait_seconds() == 0.0


def test_over_a_long_time_no_more_than_the_rate_comes_through() -> None:
    allowance = Allowance(50, 0.0)
    passed = 0
    for step in range(1, 1001):
        count = allowance.left(step * 0.01, most=3)
        allowance.take(count)
        passed += count
    assert 50 * 10 <= passed <= 50 * 10 + 50
