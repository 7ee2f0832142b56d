"""Portions of a publication: none is published behind one that failed, and all are waited for."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import LogUnavailable
from penstock.limits import SINK_WINDOW_BYTES
from penstock.ports import Prepared
from penstock.protocols import FLIGHT
from penstock.server.flight.publisher import Publisher, _Publication
from penstock.server.flight.rows import RowCheck
from penstock.storage.arrow.write.prepared import prepare
from tests.support.flight import rows
from tests.support.live import LiveBroker


def portion(value: bytes) -> Prepared:
    whole = RowCheck(lambda _: None).rows(rows([value]))
    (found,) = prepare(whole, sender="w", client=7, correlation="w/0/0", source=FLIGHT)
    return found


def test_a_portion_that_waits_behind_a_failed_one_is_not_published(tmp_path: Path) -> None:
    held, release = threading.Event(), threading.Event()
    first, third = portion(b"first"), portion(b"third")
    with LiveBroker(data=tmp_path) as live:
        publisher = live.call(lambda: Publisher(live.server.broker))
        storage = live.server.storage

        def hold() -> None:
            held.set()
            assert release.wait(10)

        def portions() -> Iterator[Prepared]:
            yield first
            live.until(lambda: storage.bounds()[0].end == 1)  # settled
            live._loop.call_soon_threadsafe(hold)
            assert held.wait(10)
            yield first  # its bytes are used up: the event loop cannot load it again
            yield third  # waits in the event loop behind it
            release.set()

        outcome: list[BaseException] = []

        def publish() -> None:
            try:
                publisher.publish(portions(), owner="o")
            except LogUnavailable as error:
                outcome.append(error)

        thread = threading.Thread(target=publish, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "the caller waits for a portion that nobody settles"
        assert len(outcome) == 1
        assert "internal error" in str(outcome[0])
        live.until(lambda: storage.next_offset == 1)
        assert storage.bounds()[0].end == 1
        assert publisher.publish([portion(b"later")], owner="o") == 1  # others go on


def test_a_stopped_publisher_releases_its_callers(tmp_path: Path) -> None:
    with LiveBroker(data=tmp_path) as live:
        publisher = live.call(lambda: Publisher(live.server.broker))
        publisher.stop()
        with pytest.raises(LogUnavailable, match="stopping"):
            publisher.publish([portion(b"x")], owner="o")


@pytest.mark.parametrize(
    ("release", "is_accepted"),
    [
        (lambda publication, part: publication.settled(part), True),
        (lambda publication, _: publication.fail(LogUnavailable("full")), False),
        (lambda publication, _: publication.abandon(), False),
    ],
    ids=["room", "failure", "stop"],
)
def test_a_thread_that_waits_for_room_goes_on(
    release: Callable[[_Publication, Any], None], *, is_accepted: bool
) -> None:
    publication = _Publication("p")
    part: Any = SimpleNamespace(held_bytes=SINK_WINDOW_BYTES)
    assert publication.send(part), "the first portion has room, whatever its size"
    accepted: list[bool] = []
    waiting = threading.Thread(target=lambda: accepted.append(publication.send(part)), daemon=True)
    waiting.start()
    while not publication._changed._waiters:  # type: ignore[attr-defined]
        time.sleep(0.001)
    release(publication, part)
    waiting.join(10)
    assert accepted == [is_accepted]
