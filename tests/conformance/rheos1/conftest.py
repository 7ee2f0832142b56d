"""Cases that hold in both versions ask for `rheos`; here it is v1."""

import itertools
from collections.abc import Iterator

import pytest

from penstock.gateway.options import GatewayOptions
from penstock.protocols import PROTOCOLS
from tests.support.live import LiveBroker
from tests.support.rheos_bytes import RHEOS1, Rheos

_numbers = itertools.count(1)


@pytest.fixture
def rheos() -> Rheos:
    return RHEOS1


@pytest.fixture
def topic() -> bytes:
    """A name that no other case uses."""
    return b"case/%d" % next(_numbers)


@pytest.fixture(scope="module")
def pinned() -> Iterator[LiveBroker]:
    """A broker whose port speaks nothing but this version."""
    with LiveBroker(options=GatewayOptions(protocol=PROTOCOLS["rheos1"])) as live:
        yield live
