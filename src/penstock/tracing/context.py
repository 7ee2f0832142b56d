"""The trace context of a publisher, as W3C Trace Context writes it in a header.

00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
││ └ trace id, 16 bytes             └ parent id      └ flags: bit 0 is "sampled"
└ version
"""

import re
from typing import Final, NamedTuple

__all__ = ["TRACE_HEADER", "TraceContext", "parse_traceparent"]

TRACE_HEADER: Final = "traceparent"
"""The name of the header, also of messages."""

_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_INVALID_VERSION: Final = b"ff"
_FIRST_VERSION: Final = b"00"
_SAMPLED: Final = 1


class TraceContext(NamedTuple):
    """A trace and the span in it that is the parent, 0 for none; `sampled` by the publisher."""

    trace_id: int
    parent_id: int
    sampled: bool


def parse_traceparent(text: bytes) -> TraceContext | None:
    """Return the context of a header, None if it is not valid."""
    found = _FORM.fullmatch(text)
    if found is None or found[1] == _INVALID_VERSION:
        return None
    if found[1] == _FIRST_VERSION and found[5] is not None:
        return None
    trace_id, parent_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not parent_id:
        return None
    return TraceContext(trace_id, parent_id, sampled=bool(int(found[4], 16) & _SAMPLED))
