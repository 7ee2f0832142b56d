"""Rheos cases of Penstock's profile about CREATE and SUBSCRIBE."""

from typing import Final

from penstock.conform.case import CaseCollector, Setup
from penstock.conform.context import CaseContext
from penstock.conform.peer import equal
from penstock.conform.rheos.encoding import (
    BOB,
    CREATE,
    FAILED,
    NO_MESSAGE,
    PUBLISH,
    SUBSCRIBE,
    SUCCESS,
    Rheos,
)
from penstock.conform.rheos.peer import client, created, message_offset
from penstock.conform.rheos.sections import ACKNOWLEDGMENT, NOTES, TOPIC, TOPIC_ERRORS

__all__ = ["cases"]

NAME_BYTES_MAX: Final = 65_535
STARTS: Final = (b"@earliest", b"@-15m", b"@#7", b"@2026-11-01T00:00:00Z", b"@last", b"@group=x")
NEARLY_STARTS: Final = (
    b"@ealiest",
    b"@-15min",
    b"@latest",
    b"@2026-13-01",
    b"@lats",
    b"@gruop=x",
    b"@group:x",
    b"@group=x,ealiest",
)

cases: Final[CaseCollector[[Rheos]]] = CaseCollector()

# --- CREATE ---------------------------------------------------------------------------------------


@cases.profile(ACKNOWLEDGMENT, "CREATE is acknowledged with an id that is no message's")
def create_is_acknowledged_with_no_message_id(context: CaseContext, rheos: Rheos) -> None:
    found = client(context, rheos).granted(CREATE, context.topic())
    equal(message_offset(found), NO_MESSAGE, "offset")


@cases.profile(TOPIC_ERRORS, "SUBSCRIBE and PUBLISH fail before CREATE and succeed after it")
def a_topic_exists_once_it_was_created(context: CaseContext, rheos: Rheos) -> None:
    peer, topic = client(context, rheos), context.topic()
    peer.refused(SUBSCRIBE, topic)
    peer.refused(PUBLISH, topic)
    peer.granted(CREATE, topic)
    peer.granted(PUBLISH, topic)
    peer.granted(SUBSCRIBE, topic)


@cases.profile(TOPIC_ERRORS, "CREATE of a topic that exists fails, for any client")
def create_twice_fails(context: CaseContext, rheos: Rheos) -> None:
    first = created(context, rheos, context.topic())
    first.refused(CREATE, context.topic())
    client(context, rheos, identity=BOB).refused(CREATE, context.topic())


@cases.profile(TOPIC, "A topic stays when the client that created it leaves")
def a_topic_stays_without_its_creator(context: CaseContext, rheos: Rheos) -> None:
    created(context, rheos, context.topic()).close()
    peer = client(context, rheos)
    peer.refused(CREATE, context.topic())
    peer.granted(PUBLISH, context.topic())


@cases.profile(TOPIC_ERRORS, "No topic has an empty name or a wildcard level in its name")
def a_name_with_a_wildcard_level_is_refused(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for name in context.each((b"", b"#", b">", b"+", b"*", b"a/+/b", b"a.*", b"a/#", b"a.>")):
        peer.refused(CREATE, name)
        peer.refused(PUBLISH, name, b"refused too")


@cases.profile(TOPIC, "A wildcard character inside a level is part of the name", requires=Setup.LOG)
def a_name_may_resemble_a_wildcard(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for name in context.each((b"a+", b"#1", b"c*d", b">>", b"a//b", b"/", b".", b" ", b"\0")):
        peer.granted(CREATE, name)
        peer.granted(PUBLISH, name, b"1")


@cases.profile(TOPIC, "A name has up to 65,535 bytes")
def a_name_may_have_65535_bytes(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    for size in context.each((65_526, 65_527, NAME_BYTES_MAX)):
        name = context.topic().ljust(size, b"n")
        peer.granted(CREATE, name)
        peer.granted(SUBSCRIBE, name)
        other.granted(PUBLISH, name, b"1")
        peer.delivered(name, b"1", BOB)


@cases.profile(TOPIC_ERRORS, "No name ends in a start position, or in what is almost one")
def a_name_that_ends_in_a_start_position_is_refused(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    peer = created(context, rheos, topic)
    for start in context.each((*STARTS, *NEARLY_STARTS)):
        peer.refused(CREATE, topic + start)
        peer.refused(PUBLISH, topic + start, b"refused too")
    peer.granted(PUBLISH, topic)


@cases.profile(TOPIC, "Any other text behind an @ is part of the name")
def a_name_may_have_an_at_sign(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    for ending in context.each((b"@host", b"@10m", b"@7", b"@", b"@earliest/b", b"@east")):
        name = context.topic() + ending
        peer.granted(CREATE, name)
        peer.granted(SUBSCRIBE, name)
        other.granted(PUBLISH, name, b"1")
        peer.delivered(name, b"1", BOB)


@cases.profile(TOPIC_ERRORS, "Bytes that are not UTF-8 count three times in the size of a name")
def bytes_that_are_not_utf_8_count_three_times(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    start = context.topic().ljust(30, b"n")
    count = (NAME_BYTES_MAX - len(start)) // 3
    peer.granted(CREATE, start + b"\xff" * count)
    peer.refused(CREATE, start + b"\xff" * (count + 1))


@cases.profile(TOPIC, "A name may be any bytes, and each is a topic of its own")
def a_name_may_be_any_bytes(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    for ending in context.each(
        (b"caf\xe9", b"caf\xc3\xa9", b"caf%E9", b"50%", b"%25", b"\x80\xfe\xff/\xc3\x28")
    ):
        name = context.topic(ending)
        peer.refused(SUBSCRIBE, name)
        peer.granted(CREATE, name)
        peer.refused(CREATE, name)
        peer.granted(SUBSCRIBE, name)
        other.granted(PUBLISH, name, name)
        peer.delivered(name, name, BOB)


@cases.profile(TOPIC, "The payload of a CREATE is ignored")
def the_payload_of_a_create_is_ignored(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    peer.granted(SUBSCRIBE, context.topic(b"#"))
    other.granted(CREATE, context.topic(b"made"), b"x" * 65_535)
    other.granted(PUBLISH, context.topic(b"made"), b"first")
    peer.delivered(context.topic(b"made"), b"first", BOB)


# --- SUBSCRIBE ------------------------------------------------------------------------------------


@cases.profile(ACKNOWLEDGMENT, "SUBSCRIBE is acknowledged with an id that is no message's")
def subscribe_is_acknowledged_with_no_message_id(context: CaseContext, rheos: Rheos) -> None:
    found = created(context, rheos, context.topic()).granted(SUBSCRIBE, context.topic())
    equal(message_offset(found), NO_MESSAGE, "offset")


@cases.profile(TOPIC_ERRORS, "A refused SUBSCRIBE brings nothing; a later one counts from then on")
def a_refused_subscribe_brings_nothing(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    topic = context.topic()
    peer.refused(SUBSCRIBE, topic)
    other.granted(CREATE, topic)
    other.granted(PUBLISH, topic, b"before the subscription")
    peer.granted(SUBSCRIBE, topic)
    other.granted(PUBLISH, topic, b"2")
    peer.delivered(topic, b"2", BOB)


@cases.profile(TOPIC, "A subscription to a name matches that name alone")
def a_name_matches_itself_alone(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    topic = context.topic()
    for name in (topic, topic + b"2", topic + b"/below"):
        other.granted(CREATE, name)
    peer.granted(SUBSCRIBE, topic)
    other.granted(PUBLISH, topic + b"2", b"no")
    other.granted(PUBLISH, topic + b"/below", b"no")
    other.granted(PUBLISH, topic, b"yes")
    peer.delivered(topic, b"yes", BOB)


@cases.profile(TOPIC, "A second SUBSCRIBE succeeds and does not deliver twice")
def a_second_subscribe_changes_nothing(context: CaseContext, rheos: Rheos) -> None:
    other = created(context, rheos, context.topic(), identity=BOB)
    peer = client(context, rheos)
    for _ in range(3):
        peer.granted(SUBSCRIBE, context.topic())
    other.granted(PUBLISH, context.topic(), b"once")
    peer.delivered(context.topic(), b"once")
    peer.expect_alive()


@cases.profile(TOPIC, "A message that several subscriptions match is delivered once")
def a_message_is_delivered_once(context: CaseContext, rheos: Rheos) -> None:
    topic = context.topic()
    other = created(context, rheos, topic, identity=BOB)
    peer = client(context, rheos)
    for pattern in (topic, topic + b"/#", context.topic(b"+")):
        peer.granted(SUBSCRIBE, pattern)
    other.granted(PUBLISH, topic, b"once")
    peer.delivered(topic, b"once")
    peer.expect_alive()


@cases.profile(TOPIC, "A pattern may be subscribed to before any topic matches it")
def a_pattern_needs_no_topic(context: CaseContext, rheos: Rheos) -> None:
    for number, tail in enumerate(context.each((b"/#", b".>", b"/+", b".*"))):
        peer, other = client(context, rheos), client(context, rheos, identity=BOB)
        topic = context.topic(b"%d" % number)
        peer.granted(SUBSCRIBE, topic + tail)
        other.granted(CREATE, topic + b"/later")
        other.granted(PUBLISH, topic + b"/later", b"1")
        peer.delivered(topic + b"/later", b"1", BOB)


@cases.profile(TOPIC, "+ matches one level, # matches all levels below")
def wildcards_match_levels(context: CaseContext, rheos: Rheos) -> None:
    level, rest = client(context, rheos), client(context, rheos)
    other, topic = client(context, rheos, identity=BOB), context.topic()
    level.granted(SUBSCRIBE, topic + b"/+/c")
    rest.granted(SUBSCRIBE, topic + b"/#")
    names = [topic + tail for tail in (b"", b"/b", b"/b/c", b".b.c", b"/b/c/d", b"/x/y")]
    for name in names:
        other.granted(CREATE, name)
        other.granted(PUBLISH, name, name)
    for name in context.each(names):
        rest.delivered(name, name)
    for name in context.each(names[2:4]):
        level.delivered(name, name)
    level.expect_alive()


@cases.profile(TOPIC_ERRORS, "A pattern that can match nothing is refused")
def a_pattern_that_matches_nothing_is_refused(context: CaseContext, rheos: Rheos) -> None:
    peer = client(context, rheos)
    for pattern in context.each((b"", b"a/#/b", b">.a")):
        peer.refused(SUBSCRIBE, pattern)


@cases.profile(TOPIC_ERRORS, "A subscription from what is almost a start position fails")
def a_start_that_is_almost_one_is_refused(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    for pattern in (context.topic(), context.topic(b"#")):
        for start in context.each(NEARLY_STARTS):
            peer.refused(SUBSCRIBE, pattern + start)
    peer.granted(PUBLISH, context.topic(), b"not delivered")
    peer.expect_alive()


@cases.profile(TOPIC, "A pattern matches names that are not UTF-8")
def a_pattern_matches_binary_names(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    name = context.topic(b"\xff\x00\xfe")
    peer.granted(SUBSCRIBE, context.topic(b"+"))
    other.granted(CREATE, name)
    other.granted(PUBLISH, name, b"\xff")
    peer.delivered(name, b"\xff", BOB)


@cases.profile(TOPIC, "The payload of a SUBSCRIBE is ignored")
def the_payload_of_a_subscribe_is_ignored(context: CaseContext, rheos: Rheos) -> None:
    peer = created(context, rheos, context.topic())
    peer.granted(SUBSCRIBE, context.topic(), b"not a message")
    peer.expect_alive()


# --- Rules and limits -----------------------------------------------------------------------------


@cases.profile(
    NOTES, "A client that may not publish to a topic may not create it", requires=Setup.RULES
)
def a_forbidden_topic_is_not_created(context: CaseContext, rheos: Rheos) -> None:
    peer, topic = client(context, rheos), b"secret/" + context.topic()
    peer.refused(CREATE, topic)
    peer.refused(SUBSCRIBE, topic)
    peer.granted(CREATE, context.topic(b"open"))
    peer.granted(PUBLISH, context.topic(b"open"))


@cases.profile(NOTES, "A forbidden subscription fails and brings nothing", requires=Setup.RULES)
def a_forbidden_subscription_brings_nothing(context: CaseContext, rheos: Rheos) -> None:
    name = b"hidden/" + context.topic().replace(b"/", b"-")
    peer = created(context, rheos, name)
    for pattern in context.each((name, b"hidden/+", b"hidden/#")):
        peer.refused(SUBSCRIBE, pattern)
    peer.granted(PUBLISH, name, b"not delivered")
    peer.expect_alive()


@cases.profile(
    NOTES,
    "A subscription above the limit fails and the others stay",
    requires=Setup.SUBSCRIPTIONS,
)
def a_subscription_above_the_limit_fails(context: CaseContext, rheos: Rheos) -> None:
    peer, other = client(context, rheos), client(context, rheos, identity=BOB)
    first, second, third = (context.topic(letter) for letter in (b"a", b"b", b"c"))
    for name in (first, second, third):
        peer.granted(CREATE, name)
    for name, code in context.each(
        ((first, SUCCESS), (second, SUCCESS), (third, FAILED), (first, SUCCESS))
    ):
        peer.request(SUBSCRIBE, name).acknowledged(code)
    for name in (third, second, first):
        other.granted(PUBLISH, name, name)
    for name in (second, first):
        peer.delivered(name, name)
