"""A subscription to `@last` gets the last message of each topic, then all later ones."""

import time

import pytest

from penstock.core.access import ANYONE
from penstock.core.broker import Broker
from penstock.errors import NoHistory, NoLastValues
from penstock.storage.memory import MemoryLog
from tests.support.fakes import FakeClock, RecordingLink
from tests.unit.core.test_catch_up import HERALD, Client, Desk, words


def desk_with(*messages: tuple[int, bytes], **settings: object) -> Desk:
    """A broker with some committed messages of channels."""
    desk = Desk(**settings)
    for channel, value in messages:
        desk.send_values(value, channel=channel)
    desk.log.commit()
    return desk


def settle(desk: Desk) -> None:
    """Let all reads end, and what follows from them."""
    for _ in range(20):
        desk.log.answer_all()
        desk.broker.slices.run()
        desk.broker.timers.run_due()


def last_client(desk: Desk, *texts: str) -> Client:
    client = desk.join()
    client.subscribe(*texts)
    return client


def test_the_last_message_of_each_topic_comes_first_then_all_later_ones() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"), (1, b"a2"), (3, b"c1"), (2, b"b2"))
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == [b"a2", b"c1", b"b2"]
    assert client.live
    desk.send("a3", channel=1)
    assert client.read() == [b"a3"]


def test_only_topics_of_the_subscription_are_sent() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"), (1, b"a2"))
    client = last_client(desk, "channel/2@last")
    settle(desk)
    assert client.read() == [b"b1"]


def test_messages_published_meanwhile_come_once_and_in_order() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    client = last_client(desk, "#@last")
    desk.send("a2", channel=1)
    desk.send("a3", channel=1)
    desk.log.commit()
    settle(desk)
    received = client.read()
    assert received in ([b"a1", b"b1", b"a2", b"a3"], [b"b1", b"a2", b"a3"])
    assert client.live


def test_a_last_message_that_is_not_written_yet_is_awaited() -> None:
    desk = desk_with((1, b"a1"))
    desk.send("a2", channel=1)
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == []
    desk.log.commit()
    settle(desk)
    assert client.read() == [b"a2"]


def test_a_message_whose_commit_failed_is_not_the_last_one() -> None:
    desk = desk_with((1, b"a1"))
    desk.send("a2", channel=1)
    desk.log.fail()
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == [b"a1"]
    assert client.live


def test_a_message_is_the_last_one_again_when_the_commit_of_the_next_one_fails() -> None:
    desk = desk_with((2, b"b1"))
    first = last_client(desk, "#@last")  # the log is read for it, before the others come
    settle(desk)
    assert first.read() == [b"b1"]
    desk.send("a1", channel=1)
    desk.log.commit()
    desk.send("a2", channel=1)
    desk.log.fail()
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == [b"b1", b"a1"]


def test_messages_of_earlier_runs_are_found_in_the_log_once() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    desk = desk.restarted()
    desk.send("b2", channel=2)
    desk.log.commit()
    clients = [last_client(desk, "#@last") for _ in range(3)]
    settle(desk)
    assert [client.read() for client in clients] == [[b"a1", b"b2"]] * 3
    assert desk.log.last_reads == 1


def test_after_a_failed_commit_only_later_messages_are_searched() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(20)))
    first = last_client(desk, "channel/3@last")
    settle(desk)
    assert first.read() == [b"3"]
    searched = desk.log.last_rows_read
    desk.send("again", channel=3)
    desk.log.commit()
    desk.send("lost", channel=3)
    desk.log.fail()
    client = last_client(desk, "channel/3@last", "channel/5@last")
    settle(desk)
    assert sorted(client.read()) == [b"5", b"again"]
    assert desk.log.last_rows_read == searched + 1


def test_a_commit_that_fails_during_the_search_lets_it_go_on() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    client = last_client(desk, "#@last")
    desk.send("a2", channel=1)
    desk.log.commit()
    desk.send("a3", channel=1)
    desk.log.fail()
    settle(desk)
    assert client.read() == [b"b1", b"a2"]
    assert desk.log.last_reads == 2


def test_a_congested_client_gets_the_rest_later() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(200)))
    client = last_client(desk, "#@last")
    client.congest()
    settle(desk)
    assert client.read() == []
    desk.send("later", channel=7)
    desk.log.commit()
    client.drain()
    settle(desk)
    assert client.read() == [b"%d" % channel for channel in range(200)] + [b"later"]
    assert client.live


def test_a_message_that_another_subscription_will_send_comes_once() -> None:
    desk = desk_with((1, b"a1"), (1, b"a2"), (2, b"b1"))
    client = last_client(desk, "channel/1@earliest", "#@last")
    settle(desk)
    assert sorted(client.read()) == [b"a1", b"a2", b"b1"]


def test_two_subscriptions_to_last_messages_are_served_one_after_the_other() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    client = last_client(desk, "channel/2@last", "channel/1@last")
    settle(desk)
    assert client.read() == [b"b1", b"a1"]
    assert client.live


def test_unsubscribing_drops_what_was_not_sent() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    client = last_client(desk, "#@last")
    desk.broker.unsubscribe(client.session, "#@last")
    settle(desk)
    assert client.read() == []
    assert client.live


def test_at_the_limit_the_oldest_messages_are_dropped_and_counted() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(5)), last_topics_max=2)
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == [b"3", b"4"]
    assert desk.broker.counters.messages_dropped[client.session.encoding.protocol] == 3


def test_messages_that_retention_took_are_left_out() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    desk.log.forget(1)
    client = last_client(desk, "#@last")
    settle(desk)
    assert client.read() == [b"b1"]


def test_a_client_that_resumes_before_all_is_sent_misses_nothing() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    client = last_client(desk, "#@last")
    assert desk.broker.positions(client.session) == {"#": {0: 0}}


def test_a_broker_without_a_log_refuses_it() -> None:
    log = MemoryLog()
    broker = Broker(log=log, clock=FakeClock())
    session = broker.open(HERALD, RecordingLink(), principal=ANYONE)
    with pytest.raises(NoHistory):
        broker.subscribe(session, "#@last")


def test_a_log_without_an_index_of_topics_refuses_it() -> None:
    desk = Desk()
    desk.log.finds_last = False
    client = desk.join()
    with pytest.raises(NoLastValues):
        client.subscribe("#@last")
    assert not client.session.subscriptions


# --- Many subscriptions of one session ------------------------------------------------------------


def test_many_subscriptions_to_last_messages_are_served_in_order() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(200)))
    desk = desk.restarted()
    client = last_client(desk, *(f"channel/{channel}@last" for channel in reversed(range(200))))
    for _ in range(300):
        settle(desk)
    assert client.read() == [b"%d" % channel for channel in reversed(range(200))]
    assert client.live


def test_a_message_that_an_earlier_subscription_to_last_messages_sends_comes_once() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(5)))
    client = last_client(
        desk, "channel/3@last", "channel/+@last", "channel/4@last", "channel.2@last"
    )
    settle(desk)
    assert client.read() == words("3 0 1 2 4")
    assert client.live


def test_a_later_subscription_to_last_messages_gets_what_was_sent_before_it() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(3)))
    client = last_client(desk, "channel/1@last")
    settle(desk)
    assert client.read() == [b"1"]
    client.congest()
    client.subscribe("channel/2@last", "channel/#@last")
    settle(desk)
    client.drain()
    settle(desk)
    assert client.read() == words("2 0 1")


def test_subscriptions_behind_one_that_ends_before_it_was_collected_are_served() -> None:
    desk = desk_with((1, b"a1"), (2, b"b1"))
    desk = desk.restarted()
    client = last_client(desk, "channel/+@last", "channel/2@last", "channel/1@last")
    desk.broker.unsubscribe(client.session, "channel/+")
    desk.broker.unsubscribe(client.session, "channel/2")
    settle(desk)
    assert client.read() == [b"a1"]
    assert client.live


def test_a_subscription_that_has_ended_leaves_no_work_behind() -> None:
    desk = desk_with(*((channel, b"%d" % channel) for channel in range(100)))
    desk = desk.restarted()
    client = desk.join("#@earliest")
    for _ in range(50):
        client.subscribe("channel/+@last")
        desk.broker.unsubscribe(client.session, "channel/+")
    assert desk.broker.catch_up is not None
    assert not desk.broker.catch_up._last_values._waiting
    assert desk.log.last_reads == 1
    settle(desk)
    assert not desk.broker.slices
    assert client.live


def test_positions_of_many_subscriptions_to_last_messages_take_time_for_each_once() -> None:
    """As a ratio: 16 times as many take about 16 times as long, not 256 times."""
    seconds = []
    for count in (500, 8000):
        desk = Desk()
        client = last_client(desk, *(f"t/{number}@last" for number in range(count)))
        times = []
        for _ in range(10):
            before = time.thread_time()
            assert desk.broker.positions(client.session)["t/7"] == {0: 0}
            times.append(time.thread_time() - before)
        seconds.append(min(times))
    assert seconds[1] < 100 * seconds[0]
