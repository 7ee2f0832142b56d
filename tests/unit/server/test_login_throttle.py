"""Wrong credentials cost their address a delay, which ends, in tables that are bounded."""

from itertools import pairwise

import pytest

from penstock import limits
from penstock.server.login_throttle import GuessLimit, PasswordThrottle
from tests.support.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_the_delay_doubles_up_to_its_limit(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic)
    delays = []
    for _ in range(20):
        throttle.failed("192.0.2.1", "ada")
        delays.append(throttle.seconds_left("192.0.2.1", "ada"))
    free, delayed = (
        delays[: limits.LOGIN_FAILURES_FREE - 1],
        delays[limits.LOGIN_FAILURES_FREE - 1 :],
    )
    assert free == [0.0] * (limits.LOGIN_FAILURES_FREE - 1)
    assert delayed[0] == limits.LOGIN_DELAY_SECONDS
    assert all(
        after in {2 * before, limits.LOGIN_DELAY_SECONDS_MAX} for before, after in pairwise(delayed)
    )
    assert delayed[-1] == limits.LOGIN_DELAY_SECONDS_MAX
    clock.seconds += limits.LOGIN_DELAY_SECONDS_MAX
    assert throttle.seconds_left("192.0.2.1", "ada") == 0.0


def test_other_names_and_addresses_are_not_delayed(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic)
    for _ in range(20):
        throttle.failed("192.0.2.1", "ada")
    assert throttle.seconds_left("192.0.2.1", "bob") == 0.0
    assert throttle.seconds_left("192.0.2.2", "ada") == 0.0


def test_an_ipv6_site_is_one_address(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic)
    for number in range(20):
        throttle.failed(f"2001:db8::{number:x}", "ada")
    assert throttle.seconds_left("2001:db8::ffff", "ada") > 0
    assert throttle.seconds_left("2001:db8:0:1::1", "ada") == 0.0


def test_failures_are_forgotten_after_a_while(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic)
    for _ in range(20):
        throttle.failed("192.0.2.1", "ada")
    clock.seconds += limits.LOGIN_MEMORY_SECONDS
    assert throttle.seconds_left("192.0.2.1", "ada") == 0.0
    assert len(throttle) == 0
    throttle.failed("192.0.2.1", "ada")
    assert throttle.seconds_left("192.0.2.1", "ada") == 0.0


def test_the_tables_are_bounded(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic, records_max=5)
    guesses = GuessLimit(clock=clock.monotonic, records_max=5)
    for number in range(20):
        throttle.failed("192.0.2.1", f"user-{number}")
        guesses.failed(f"192.0.2.{number}", b"guess")
    assert (len(throttle), len(guesses)) == (5, 5)


def test_guesses_are_counted_by_address_and_forgotten(clock: FakeClock) -> None:
    guesses = GuessLimit(clock=clock.monotonic)
    for number in range(limits.GUESSES_MAX):
        assert not guesses.reached("192.0.2.1", b"next")
        guesses.failed("192.0.2.1", number.to_bytes(8, "big"))
        guesses.failed("192.0.2.2", b"the same")
    assert guesses.reached("192.0.2.1", b"next")
    assert not guesses.reached("192.0.2.2", b"next")
    clock.seconds += limits.LOGIN_MEMORY_SECONDS
    assert not guesses.reached("192.0.2.1", b"next")


def test_of_right_credentials_the_one_used_longest_ago_is_forgotten(clock: FakeClock) -> None:
    guesses = GuessLimit(clock=clock.monotonic, records_max=2)
    for digest in (b"first", b"second", b"first", b"third"):
        guesses.succeeded("192.0.2.1", digest)
    for number in range(limits.GUESSES_MAX):
        guesses.failed("192.0.2.1", number.to_bytes(8, "big"))
    assert guesses.reached("192.0.2.1", b"second")
    assert not guesses.reached("192.0.2.1", b"first")
    assert not guesses.reached("192.0.2.1", b"third")


def test_of_a_full_table_the_one_that_failed_longest_ago_goes(clock: FakeClock) -> None:
    throttle = PasswordThrottle(clock=clock.monotonic, records_max=2)
    for _ in range(limits.LOGIN_FAILURES_FREE):
        throttle.failed("10.0.0.1", "again")
    throttle.failed("10.0.0.1", "once")
    throttle.failed("10.0.0.1", "again")
    throttle.failed("10.0.0.1", "new")
    assert len(throttle) == 2
    assert throttle.seconds_left("10.0.0.1", "again") > 0
