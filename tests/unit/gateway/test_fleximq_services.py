"""Lists of the broker's services are cut at their limits; their counts are not."""

from typing import Any

import pytest

from penstock.core.broker import Broker
from penstock.core.sessions import Session
from penstock.gateway.fleximq import services
from penstock.gateway.fleximq.services import SERVICES
from tests.unit.core.test_broker import join, new_broker


def answer(path: str, broker: Broker, session: Session) -> Any:
    """Read an answer to its end."""
    steps = SERVICES[path](broker, session)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value


@pytest.mark.parametrize(
    ("limit", "most", "listed"),
    [
        ("FLEXIMQ_LISTING_ENTRIES_MAX", 258, 258),
        ("FLEXIMQ_LISTING_ENTRIES_MAX", 260, 260),
        # 10 names of 9 bytes, 90 of 10, 156 of 11 and those of 20.
        ("FLEXIMQ_LISTING_BYTES_MAX", 90 + 900 + 1716 + 20, 257),
        ("FLEXIMQ_LISTING_BYTES_MAX", 90 + 900 + 1716 + 39, 257),
    ],
)
def test_topics_are_listed_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, listed: int
) -> None:
    monkeypatch.setattr(services, limit, most)
    broker = new_broker()
    names = [f"channel/{channel}" for channel in range(256)] + [c * 20 for c in "abcd"]
    for name in names:
        broker.topics.intern(name)
    found = answer("/topics", broker, join(broker))
    assert found["count"] == len(names) == 260
    assert found["topics"] == names[:listed]


def test_clients_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "FLEXIMQ_LISTING_ENTRIES_MAX", 2)
    broker = new_broker()
    sessions = [join(broker) for _ in range(3)]
    found = answer("/clients", broker, sessions[0])
    assert found["count"] == 3
    assert [each["client_id"] for each in found["clients"]] == [
        each.number for each in sessions[:2]
    ]
