"""A session has a feed only while it has something to read from the log."""

from penstock.core.feeds import Feed
from tests.unit.core.test_catch_up import Desk, words


def test_a_subscription_from_the_end_of_the_log_is_live_at_once() -> None:
    desk = Desk()
    desk.send("a b")
    desk.log.commit()
    client = desk.join()
    assert desk.broker.resume(client.session, "#", {0: desk.log.next_offset})
    assert client.live
    assert not desk.log.reads
    desk.send("c")
    assert client.read() == words("c")


def test_a_subscription_from_before_the_end_is_not() -> None:
    desk = Desk()
    desk.send("a b")
    desk.log.commit()
    client = desk.join()
    assert desk.broker.resume(client.session, "#", {0: desk.log.next_offset - 1})
    assert not client.live
    desk.log.answer_all()
    assert client.read() == words("b")
    assert client.live


def test_a_subscription_from_now_on_keeps_what_is_queued() -> None:
    feed = Feed(10, {})
    feed.join(12, 1)
    feed.queue.append((b"frame", 1))
    feed.place("b", 13, subscribed_at=13)
    assert (feed.joins_at, feed.queue) == (12, [(b"frame", 1)])
    feed.place("a", 12, subscribed_at=13)
    assert (feed.joins_at, feed.queue) == (None, []), "the queue may lack messages of this pattern"
