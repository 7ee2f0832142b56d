"""Feed a decoder in every way a network may cut a stream, and compare what comes out."""

from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import WireError
from penstock.wire.decoder import Decoder, Rejected


def plain(item: Any) -> Any:
    """A comparable form: errors by type and arguments."""
    if isinstance(item, Rejected):
        return ("rejected", type(item.error), item.error.args)
    return item


def decode_all(decoder: Decoder[Any], chunks: Iterable[bytes]) -> list[Any]:
    """All that `decoder` makes of `chunks`; a loss of framing is the last item."""
    items: list[Any] = []
    for chunk in chunks:
        decoder.feed(chunk)
        try:
            items.extend(plain(item) for item in decoder)
        except WireError as error:
            items.append(("failed", type(error), error.args))
            break
    return items


def assert_every_cut_agrees(make: Callable[[], Decoder[Any]], stream: bytes) -> list[Any]:
    """Whole, cut in two anywhere and byte by byte, `stream` decodes the same; return that."""
    whole = decode_all(make(), [stream])
    for cut in range(1, len(stream)):
        assert decode_all(make(), [stream[:cut], stream[cut:]]) == whole, cut
    assert decode_all(make(), [stream[i : i + 1] for i in range(len(stream))]) == whole
    return whole


def assert_stays_failed(decoder: Decoder[Any], stream: bytes, error: type[WireError]) -> None:
    """`stream` loses framing with `error`, and whatever follows raises the same again."""
    decoder.feed(stream)
    for more in (b"", stream, b"\x00" * 64):
        decoder.feed(more)
        try:
            list(decoder)
        except error:
            continue
        raise AssertionError(f"{type(decoder).__name__} recovered from {error.__name__}")
