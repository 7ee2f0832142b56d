"""What stands behind an `@`, and what belongs to the name."""

from datetime import UTC, datetime

import pytest

from penstock.errors import InvalidStart
from penstock.replay import (
    Ago,
    AtOffset,
    AtTime,
    Earliest,
    GroupPlace,
    Start,
    check_replay,
    ends_in_replay,
    split_group,
    split_replay,
)

SECOND = 1_000_000
GROUP_HINT = (
    "write @group=NAME, with a name of up to 128 letters, digits, '_', '-' and '.', "
    "then ,earliest or another start position, or ,ordered=topic"
)
JOINED_HINT = "write one of these alone, or with a group: @group=NAME,earliest"


def us(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * SECOND  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("place", "start"),
    [
        ("earliest", Earliest()),
        ("-15m", Ago(15 * 60 * SECOND)),
        ("-0s", Ago(0)),
        ("-250ms", Ago(250_000)),
        ("-1.5h", Ago(5400 * SECOND)),
        ("-0.000001s", Ago(1)),
        ("-2d", Ago(172_800 * SECOND)),
        ("-1w", Ago(604_800 * SECOND)),
        ("#0", AtOffset(0)),
        ("#1234", AtOffset(1234)),
        ("#9223372036854775807", AtOffset(2**63 - 1)),
        ("2026-11-01", AtTime(us(2026, 11, 1))),
        ("2026-11-01T00:00:00Z", AtTime(us(2026, 11, 1))),
        ("2026-11-01T12:30", AtTime(us(2026, 11, 1, 12, 30))),
        ("2026-11-01T12:30:05", AtTime(us(2026, 11, 1, 12, 30, 5))),
        ("2026-11-01T12:30:05.25Z", AtTime(us(2026, 11, 1, 12, 30, 5) + 250_000)),
        ("2026-11-01T12:30:05.000001Z", AtTime(us(2026, 11, 1, 12, 30, 5) + 1)),
        ("2026-11-01T12:30:05+02:00", AtTime(us(2026, 11, 1, 10, 30, 5))),
        ("2026-11-01T12:30:05-0130", AtTime(us(2026, 11, 1, 14, 0, 5))),
        ("1969-12-31T23:59:59Z", AtTime(-SECOND)),
    ],
)
def test_a_place_in_history_is_split_from_the_pattern(place: str, start: Start) -> None:
    assert split_replay(f"a/+/b@{place}") == ("a/+/b", start)
    assert split_replay(f"user@host@{place}") == ("user@host", start)
    check_replay(f"a/+/b@{place}")
    assert ends_in_replay(f"a@{place}")


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a@",
        "a@b",
        "a@Earliest",
        "a@earliest ",
        "a@earliest\n",
        "a@latest",
        "a@-15",
        "a@15m",
        "a@-m",
        "a@-1.m",
        "a@-.5m",
        "a@-1y",
        "a@-٣m",
        "a@#",
        "a@#-1",
        "a@#1.0",
        "a@1234",
        "a@#99999999999999999999",
        "a@-" + "9" * 5000 + "s",
        "a@2026-13-45",
        "a@2026-02-29",
        "a@0000-01-01",
        "a@2026-11-01T24:61Z",
        "a@2026-11-01T",
        "a@2026-11-01Z",
        "a@2026-11-01 00:00:00Z",
        "a@20261101",
        "a@2026-W01-1",
        "a@earliest/b",
    ],
)
def test_no_other_text_is_a_start_position(text: str) -> None:
    assert split_replay(text) == (text, None)


def test_only_the_last_at_sign_counts() -> None:
    assert split_replay("a@earliest@#5") == ("a@earliest", AtOffset(5))
    assert split_replay("a@earliest@x") == ("a@earliest@x", None)
    assert split_replay("@earliest") == ("", Earliest())


@pytest.mark.parametrize(
    ("place", "hint"),
    [
        ("ealiest", "did you mean @earliest?"),
        ("Earliest", "did you mean @earliest?"),
        ("earliest ", "did you mean @earliest?"),
        ("earliest\n", "did you mean @earliest?"),
        ("earlist", "did you mean @earliest?"),
        ("earlyest", "did you mean @earliest?"),
        ("latest", "did you mean the name alone, which starts with the next message?"),
        ("-15min", "did you mean @-15m?"),
        ("-15mins", "did you mean @-15m?"),
        ("-15 m", "did you mean @-15m?"),
        ("- 15m", "did you mean @-15m?"),
        ("-15M", "did you mean @-15m?"),
        ("-1.5hours", "did you mean @-1.5h?"),
        ("-.5h", "did you mean @-0.5h?"),
        ("-1.m", "did you mean @-1m?"),
        ("-15", "did you mean @-15m, with one of the units ms, s, m, h, d and w?"),
        ("-1y", "did you mean @-15m, with one of the units ms, s, m, h, d and w?"),
        ("#1,234", "did you mean @#1234?"),
        ("# 5", "did you mean @#5?"),
        ("#1.0", "did you mean @#1?"),
        ("#-1", "did you mean @#1234, an offset?"),
        ("#99999999999999999999", "did you mean @#1234, an offset?"),
        ("2026-11-01 00:00:00Z", "did you mean @2026-11-01T00:00:00Z?"),
        ("2026-11-01t12:30z", "did you mean @2026-11-01T12:30Z?"),
        ("2026-13-45", "did you mean a time such as @2026-11-01T00:00:00Z?"),
        ("2026-11-1", "did you mean a time such as @2026-11-01T00:00:00Z?"),
        ("2026-11-01T", "did you mean a time such as @2026-11-01T00:00:00Z?"),
        ("2026-11-01Z", "did you mean a time such as @2026-11-01T00:00:00Z?"),
        ("LAST", "did you mean @last?"),
        ("Last", "did you mean @last?"),
        ("last ", "did you mean @last?"),
        ("lats", "did you mean @last?"),
        ("alst", "did you mean @last?"),
        ("lastt", "did you mean @last?"),
        ("Group=billing", "did you mean @group=billing?"),
        ("GROUP=Billing", "did you mean @group=Billing?"),
        ("gruop=billing", "did you mean @group=billing?"),
        ("grop=billing", "did you mean @group=billing?"),
        ("groups=billing", "did you mean @group=billing?"),
        ("group:billing", "did you mean @group=billing?"),
        ("gruop:billing", "did you mean @group=billing?"),
        ("group = billing", "did you mean @group=billing?"),
        (" group=billing ", "did you mean @group=billing?"),
        ("group=billing,ealiest", "did you mean @group=billing,earliest?"),
        ("group=billing, earliest", "did you mean @group=billing,earliest?"),
        ("group=billing,-15min", "did you mean @group=billing,-15m?"),
        ("ealiest,gruop=billing", "did you mean @earliest,group=billing?"),
        ("earliest,group:billing", "did you mean @earliest,group=billing?"),
        ("group=billing,orderd=topic", "did you mean @group=billing,ordered=topic?"),
        ("Group=billing,lats", GROUP_HINT),
        ("gruop=a b", GROUP_HINT),
        ("gruop=" + "n" * 128, f"did you mean @group={'n' * 128}?"),
        ("ealiest,group=a b", GROUP_HINT),
        ("group=billing,latest", GROUP_HINT),
        ("group=billing,colour=red", GROUP_HINT),
        ("last,earliest", JOINED_HINT),
        ("lats,ealiest", JOINED_HINT),
        ("earliest,ordered=topic", JOINED_HINT),
        ("last,group=billing", GROUP_HINT),
        ("group=billing,last", GROUP_HINT),
        ("group=", GROUP_HINT),
        ("group=a b", GROUP_HINT),
        ("group=billing,earlyest", "did you mean @group=billing,earliest?"),
        ("group=billing,earliest,#5", GROUP_HINT),
        ("group=billing,group=other", GROUP_HINT),
        ("group=billing,ordered=topic,ordered=topic", GROUP_HINT),
        ("group=" + "n" * 129, GROUP_HINT),
    ],
)
def test_what_is_almost_a_start_position_is_refused_with_a_hint(place: str, hint: str) -> None:
    with pytest.raises(InvalidStart) as caught:
        check_replay(f"a/+@{place}")
    assert str(caught.value) == f"@{place} is no start position: {hint}"
    assert ends_in_replay(f"a@{place}")


@pytest.mark.parametrize(
    "place",
    [
        "",
        "b",
        "host.example",
        "1234",
        "15m",
        "east",
        "fast",
        "list",
        "past",
        "latent",
        "nearest",
        "early",
        "-",
        "-.",
        "-m",
        "-5km",
        "-x",
        "-٣m",
        "#",
        "#x",
        "#12b",
        "20261101",
        "2026-W01-1",
        "2026-11",
        "v2.1",
        "groups",
        "lasting",
        "last,x",
        "earliest,x",
        "x,ordered=topic",
        "least",
        "lest",
        "ast",
        "lst",
        "home",
        "example.com",
        "example.com:8080",
        "group",
        "Group",
        "gruop",
        "group.example",
        "group/billing",
        "group-a",
        "crop=5",
        "grow=1",
        "prop=x",
        "troop=7",
        "croup:7",
        "user=billing",
        "a,b",
        "Miller,Group",
        "gruop=" + "n" * 251,
        "earliest/b",
        "-" + "9" * 5000 + "s",
    ],
)
def test_any_other_at_sign_belongs_to_the_name(place: str) -> None:
    check_replay(f"a@{place}")
    assert not ends_in_replay(f"a@{place}")
    assert split_replay(f"a@{place}") == (f"a@{place}", None)


def test_a_name_that_ends_in_a_start_position_can_be_read_from_a_start() -> None:
    check_replay("a@earliest@#5")
    check_replay("a@ealiest@earliest")
    check_replay("a")
    assert not ends_in_replay("a")


@pytest.mark.parametrize(
    ("place", "group"),
    [
        ("group=billing", GroupPlace("billing")),
        ("group=" + "n" * 128, GroupPlace("n" * 128)),
        ("group=billing,earliest", GroupPlace("billing", Earliest())),
        ("#5,group=b.i_l-l", GroupPlace("b.i_l-l", AtOffset(5))),
        ("group=billing,-15m", GroupPlace("billing", Ago(900_000_000))),
        ("group=billing,ordered=topic", GroupPlace("billing", is_ordered=True)),
        (
            "ordered=topic,earliest,group=billing",
            GroupPlace("billing", Earliest(), is_ordered=True),
        ),
    ],
)
def test_a_subscription_may_end_in_a_group(place: str, group: GroupPlace) -> None:
    text = f"orders/#@{place}"
    check_replay(text)
    assert split_group(text) == ("orders/#", group)
    assert split_replay(text) == ("orders/#", None)
    assert ends_in_replay(f"orders@{place}")


def test_a_subscription_without_a_group_has_none() -> None:
    for text in ("orders", "orders@earliest", "orders@groups", "a@group=x/b"):
        assert split_group(text) == (text, None)
