"""Tests of both versions ask for `rheos`."""

import itertools

import pytest

from penstock.conform.rheos.encoding import RHEOS1, RHEOS2, Rheos

_numbers = itertools.count(1)


@pytest.fixture(params=[RHEOS1, RHEOS2], ids=["rheos1", "rheos2"])
def rheos(request: pytest.FixtureRequest) -> Rheos:
    found: Rheos = request.param
    return found


@pytest.fixture
def topic() -> bytes:
    """A name that no other test uses."""
    return b"case/%d" % next(_numbers)
