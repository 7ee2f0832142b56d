"""Histograms of durations: mean, longest and percentiles."""

import pytest

from penstock.core.histogram import Histogram


def test_percentiles_lie_within_the_bucket_of_their_duration() -> None:
    times = Histogram((0.01, 0.1, 1.0))
    for _ in range(98):
        times.add(0.005)
    times.add(0.5)
    times.add(3.0)
    assert times.quantile(0.5) == pytest.approx(0.01 * 50 / 98)
    assert 0.1 < times.quantile(0.985) <= 1.0
    assert times.quantile(1.0) == pytest.approx(3.0)
    assert (times.count, times.seconds_max) == (100, 3.0)


def test_no_percentile_is_above_the_longest_duration() -> None:
    times = Histogram((0.01, 1.0))
    assert times.quantile(0.99) == 0.0
    times.add(0.02, count=7)
    assert times.quantile(0.99) <= 0.02
    assert times.quantile(0.0) == pytest.approx(0.01)
