"""A rate limit lets a steady rate through, and a burst of one second's worth."""

from penstock.core.rates import RateLimit


def test_a_burst_then_the_rate() -> None:
    limit = RateLimit(100, 0.0)
    assert limit.available(0.0, most=1000) == 100
    assert limit.available(0.0, most=7) == 7
    limit.take(100)
    assert limit.available(0.0, most=1000) == 0
    assert limit.wait_seconds() == 0.01
    assert limit.available(0.01, most=1000) == 1
    assert limit.available(0.5, most=1000) == 50
    assert limit.available(60.0, most=1000) == 100


def test_over_a_long_time_no_more_than_the_rate_comes_through() -> None:
    limit = RateLimit(50, 0.0)
    passed = 0
    for step in range(1, 1001):
        count = limit.available(step * 0.01, most=3)
        limit.take(count)
        passed += count
    assert 50 * 10 <= passed <= 50 * 10 + 50
