"""Decoding of one connection: findings of both sides, in the order of the capture."""

from collections.abc import Iterator

from penstock.decode.capture import Connection, Piece
from penstock.decode.direction import Direction
from penstock.decode.findings import Finding, Heading
from penstock.decode.identify import identify
from penstock.decode.reading import Reading, reading_of
from penstock.errors import WireError
from penstock.limits import DETECT_BYTES_MAX
from penstock.model import ByteOrder
from penstock.protocols import Protocol

__all__ = ["explain"]


def explain(
    connection: Connection,
    number: int,
    *,
    protocol: Protocol | None = None,
    order: ByteOrder | None = None,
    from_client: bool | None = None,
) -> Iterator[Finding]:
    """Yield a heading and the findings of a connection; no captured bytes raise an exception.

    Arguments that are None are detected from the bytes. `from_client` applies to a capture of a
    single side; with two sides it is detected.
    """
    first, second = connection.start(DETECT_BYTES_MAX)
    if connection.opened is not None:
        from_client = connection.opened
    elif connection.has_both:
        from_client = None
    try:
        found = identify(first, second, protocol=protocol, order=order, from_client=from_client)
    except WireError as error:
        yield Heading(number, connection.name(forward=True), "", None, str(error))
        return
    reading = reading_of(found.protocol)
    both = reading.sides(found.order, not connection.has_both)
    directions = {
        is_client: Direction(side, found.protocol, connection=number, from_client=is_client)
        for side, is_client in zip(both, (True, False), strict=True)
    }
    yield Heading(
        number, connection.name(forward=found.from_client), found.protocol.label, found.order
    )
    pieces = connection.pieces
    if not connection.has_both and found.from_client:
        pieces = _cut_first_packet(pieces, found.order, reading)
    for piece in pieces:
        direction = directions[piece.forward is found.from_client]
        yield from direction.gap(piece.gap) if piece.gap else direction.feed(piece.data)
    for direction in directions.values():
        yield from direction.finish()


def _cut_first_packet(pieces: list[Piece], order: ByteOrder, reading: Reading) -> list[Piece]:
    """Return pieces cut where the first packet ends, if only the server's answer shows it."""
    first, *others = pieces or [Piece(forward=True)]
    end = reading.first_packet_end(first.data, order)
    if not end:
        return pieces
    head = Piece(first.forward, first.data[:end])
    return [head, Piece(first.forward, first.data[end:]), *others]
