"""`traceparent` as W3C Trace Context defines it, with the examples of its text."""

import pytest

from penstock.tracing import TraceContext, parse_traceparent, received_id

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
VALID = TraceContext(int(TRACE, 16), int(PARENT, 16), sampled=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"00-{TRACE}-{PARENT}-01", VALID),
        (f"00-{TRACE}-{PARENT}-00", VALID._replace(sampled=False)),
        (f"00-{TRACE}-{PARENT}-03", VALID),  # other flags are ignored
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", VALID),
        (f"cc-{TRACE}-{PARENT}-01", VALID),
        (f"00-{TRACE}-{PARENT}-01-more", None),
        (f"cc-{TRACE}-{PARENT}-01.more", None),
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{TRACE}-{PARENT}", None),
        (f"00-{TRACE}-{PARENT}-01\n", None),
        ("", None),
    ],
)
def test_a_header_is_valid_or_ignored(text: str, expected: TraceContext | None) -> None:
    assert parse_traceparent(text.encode()) == expected


def test_the_id_of_a_span_follows_from_the_message_and_is_never_0() -> None:
    assert received_id(bytes(16)) == received_id(bytes(16)) != received_id(b"x" * 16)
    assert 0 < received_id(bytes(16)) < 1 << 64
