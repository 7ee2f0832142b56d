"""Addresses belong to the smallest range that contains them, in any way they are written."""

import pytest

from penstock.server.networks import NetworkTable, contains, parse_network, throttled_as

TABLE = NetworkTable(
    (parse_network(text), owner)
    for text, owner in [
        ("10.0.0.0/8", "plant"),
        ("10.1.0.0/16", "line"),
        ("10.1.2.3", "press"),
        ("2001:db8::/32", "lab"),
    ]
)


@pytest.mark.parametrize(
    ("host", "owner"),
    [
        ("10.9.9.9", "plant"),
        ("10.1.9.9", "line"),
        ("10.1.2.3", "press"),
        ("::ffff:10.1.2.3", "press"),
        ("2001:db8::1", "lab"),
        ("2001:db8::1%eth0", "lab"),
        ("11.0.0.1", None),
        ("::1", None),
        ("::a01:203", None),  # the same bits as 10.1.2.3, but no IPv4 address
        ("", None),
        ("press", None),
    ],
)
def test_the_smallest_range_counts(host: str, owner: str | None) -> None:
    assert TABLE.find(host) == owner


@pytest.mark.parametrize("text", ["10.1.0.1/16", "10.1.0.0/33", "plant", "", "10.1/16"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_network(text)


def test_contains() -> None:
    networks = [parse_network("10.0.0.0/8"), parse_network("::1")]
    assert contains(networks, "10.2.3.4")
    assert contains(networks, "::1")
    assert not contains(networks, "11.0.0.1")
    assert not contains(networks, "")


def test_failures_of_ipv6_are_counted_by_site() -> None:
    assert throttled_as("2001:db8::1") == throttled_as("2001:db8::2:3")
    assert throttled_as("2001:db8::1") != throttled_as("2001:db8:0:1::1")
    assert throttled_as("::ffff:192.0.2.1") == throttled_as("192.0.2.1") == "192.0.2.1"
    assert throttled_as("") == ""
