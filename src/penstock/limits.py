"""Every bound in one place. Each is a default; what takes it also takes another.

A name ends in its unit and in `_MAX`. Bounds that a specification fixes say so.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- Topics -----------------------------------------------------------------------------------
TOPIC_NAME_BYTES_MAX: Final = 65_526
"""A topic name in UTF-8: the longest that fits all five, set by fleximq's header of 64 KiB."""
TOPICS_MAX: Final = 1_048_576
"""Topic names one process interns."""

# --- First bytes of a connection --------------------------------------------------------------
DETECT_BYTES_MAX: Final = 132 * KIB
"""Bytes read to learn which protocol a connection speaks: the longest Rheos packet that fits both
versions, and so needs its checksum to be told apart, has 131,100."""

# --- Rheos ------------------------------------------------------------------------------------
RHEOS_BODY_BYTES_MAX: Final = 16 * MIB
"""Body of a Rheos v2 packet, and payload of a Rheos v1 response."""
RHEOS1_BODY_BYTES_MAX: Final = 131_074
"""Body of a Rheos v1 request. Fixed by the specification: two 16-bit lengths and their bytes."""

# --- herald -----------------------------------------------------------------------------------
HERALD_PAYLOAD_BYTES_MAX: Final = 1_048_576
"""Fixed by the specification: MAX_PAYLOAD_SIZE."""

# --- fleximq ----------------------------------------------------------------------------------
FLEXIMQ_HEADER_BYTES_MAX: Final = 64 * KIB
"""Section 7.1, maximum header size."""
FLEXIMQ_MESSAGE_BYTES_MAX: Final = 16 * MIB
FLEXIMQ_MESSAGE_BYTES_CEILING: Final = 1 * GIB
"""Section 7.1, maximum total message size: no setting goes beyond it."""
FLEXIMQ_ROUTING_ENTRIES_MAX: Final = 1024
FLEXIMQ_HEADER_DEPTH_MAX: Final = 8
FLEXIMQ_HEADER_ELEMENTS_MAX: Final = 8192
FLEXIMQ_HEADER_STRING_BYTES_MAX: Final = 65_535
FLEXIMQ_PAYLOAD_DEPTH_MAX: Final = 64
FLEXIMQ_PAYLOAD_ELEMENTS_MAX: Final = 1_048_576
FLEXIMQ_HEADERS_CACHED_MAX: Final = 65_536
"""Distinct header maps a scanner remembers before it starts over."""

# --- LamaMQ -----------------------------------------------------------------------------------
LAMAMQ_IDENTITY_NAME_BYTES_MAX: Final = 1024
"""Below 64 KiB, so that the length read in the wrong byte order is never plausible."""
LAMAMQ_IDENTITY_KEY_BYTES_MAX: Final = 4 * KIB
LAMAMQ_HEADERS_MAX: Final = 256
LAMAMQ_HEADERS_BYTES_MAX: Final = 64 * KIB
"""All headers of one message together, lengths included."""
LAMAMQ_PAYLOAD_BYTES_MAX: Final = 16 * MIB
LAMAMQ_ERROR_MESSAGE_BYTES_MAX: Final = 64 * KIB
LAMAMQ_HOOK_NAME_BYTES_MAX: Final = 255
LAMAMQ_HOOK_CONDITIONS_MAX: Final = 64

# --- Batches ----------------------------------------------------------------------------------
BATCH_ROWS_MAX: Final = 65_536
BATCH_SENDERS_MAX: Final = 64
"""Distinct Rheos client ids in one batch; the next one starts a new batch."""

# --- The broker -------------------------------------------------------------------------------
SESSIONS_MAX: Final = 100_000
SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions of one client."""
OUT_BUFFER_BYTES_MAX: Final = 32 * MIB
"""Bytes that wait for one client to read them; one batch may come on top."""
HOLD_SECONDS_MAX: Final = 1.0
"""How long publishers wait for a subscriber that does not read, before it loses messages."""
RECEIVE_BUFFER_BYTES: Final = 256 * KIB
"""The buffer that all connections of an event loop read into, one after the other."""
HANDSHAKE_SECONDS_MAX: Final = 10
"""From the connection to the end of the handshake."""
