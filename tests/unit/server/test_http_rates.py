"""Rates of HTTP callers: a caller above its rate is refused, and callers are bounded."""

import pytest

from penstock.server.http import rates
from penstock.server.http.errors import ApiError
from penstock.server.http.rates import CallerRates


def test_the_callers_are_bounded_and_the_one_that_asked_longest_ago_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "HTTP_CALLERS_MAX", 2)
    made = CallerRates(1, code="too-many", noun="requests")
    for caller in "abc":
        made.take(caller)
    assert list(made._limits) == ["b", "c"]
    with pytest.raises(ApiError, match="more than 1 requests in a second"):
        made.take("b")
    made.take("a")
    assert list(made._limits) == ["b", "a"]
