"""One live broker for each conformance module."""

from collections.abc import Iterator

import pytest

from tests.support.live import LiveBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live
