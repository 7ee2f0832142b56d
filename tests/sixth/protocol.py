"""The declaration of Lines, a protocol of text lines.

    client                        broker
    hello NAME                    ok
    pub TOPIC SIZE, VALUE         ok
    sub PATTERN, unsub PATTERN    ok, or err TEXT
    ping                          pong
                                  msg TOPIC SENDER SIZE, VALUE

Words are separated by one blank and percent-encoded; a line ends with a line feed. A value follows
its line, with as many bytes as the line says and a line feed.
"""

from typing import Final

from penstock.protocols.declaration import Carries, Limit, Protocol, RefusalSigns

__all__ = ["LINES"]

LINES: Final = Protocol(
    number=6,
    label="lines",
    title="Lines",
    orders=("big",),
    transports=frozenset({"tcp", "tls", "ipc", "stdio"}),
    carries=Carries(acknowledgments=True),
    limits=(Limit("line_bytes_max", 65_536, 64, 1_048_576),),
    refusal=RefusalSigns(unauthenticated_words=("credentials",)),
    detection="tests.sixth.wire:DETECTION",
    encoder="tests.sixth.broker:LinesEncoder",
    gateway="tests.sixth.broker:LinesGateway",
    client="tests.sixth.client:lines_sessions",
    decode="tests.sixth.captures:READING",
    capture="tests.sixth.captures:lines_role",
    conform="tests.sixth.cases:SUITE",
    bench="tests.sixth.load:LinesWire",
)
