"""Names that messages can be published to."""

import pytest

from penstock.errors import InvalidTopicName
from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.topic_names import check_topic_name


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a/b.c",
        "user@host",
        "wind@10m",
        "a@earliest/b",
        "a@",
        "é" * (TOPIC_NAME_BYTES_MAX // 2),
    ],
)
def test_a_name_may_be_any_text(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        ("a/+", "a level is a wildcard"),
        ("#", "a level is a wildcard"),
        ("a" * (TOPIC_NAME_BYTES_MAX + 1), f"a name has at most {TOPIC_NAME_BYTES_MAX} bytes"),
        ("é" * (TOPIC_NAME_BYTES_MAX // 2 + 1), f"a name has at most {TOPIC_NAME_BYTES_MAX} bytes"),
        ("a@earliest", "subscriptions would take @earliest for a start position"),
        ("a@#7", "subscriptions would take @#7 for a start position"),
        ("a@-15m", "subscriptions would take @-15m for a start position"),
        ("a@2026-11-01", "subscriptions would take @2026-11-01 for a start position"),
        ("a@ealiest", "subscriptions would take @ealiest for a start position"),
        ("a@last", "subscriptions would take @last for a start position"),
    ],
)
def test_a_name_that_no_subscription_can_give_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopicName) as caught:
        check_topic_name(name)
    assert str(caught.value) == f"no topic can be named {name[:200]!r}: {reason}"
