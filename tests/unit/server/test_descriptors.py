"""The limit of open files is raised, and a part of it is kept for the broker itself."""

import resource
from collections.abc import Iterator

import pytest

from penstock.limits import DESCRIPTORS_MAX, DESCRIPTORS_PER_PROGRAM
from penstock.server.descriptors import Descriptors, raise_descriptor_limit


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    """Give the limits of this process back after a test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_limit_is_raised_and_a_high_one_stays(limits: tuple[int, int]) -> None:
    hard = limits[1]
    highest = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    for soft in (highest - 1, highest):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert raise_descriptor_limit().limit == highest
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (highest, hard)


def test_programs_need_descriptors_too() -> None:
    without, with_two = raise_descriptor_limit(), raise_descriptor_limit(programs=2)
    assert with_two.reserved == without.reserved + 2 * DESCRIPTORS_PER_PROGRAM
    assert with_two.connections_max == with_two.limit - with_two.reserved
    assert raise_descriptor_limit(programs=1 << 30).reserved == without.limit // 2
    assert Descriptors(limit=4, reserved=9).connections_max == 1
