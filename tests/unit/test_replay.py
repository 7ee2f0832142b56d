"""What stands behind an `@`, and what belongs to the name."""

from datetime import UTC, datetime

import pytest

from penstock.replay import Ago, AtOffset, AtTime, Earliest, Start, split_replay

SECOND = 1_000_000


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
def test_any_other_at_sign_belongs_to_the_name(text: str) -> None:
    assert split_replay(text) == (text, None)


def test_only_the_last_at_sign_counts() -> None:
    assert split_replay("a@earliest@#5") == ("a@earliest", AtOffset(5))
    assert split_replay("a@earliest@x") == ("a@earliest@x", None)
    assert split_replay("@earliest") == ("", Earliest())
