"""The harness itself: every broken promise is caught, and mutants are the same every time."""

import pytest

from penstock.errors import FrameTooLarge
from penstock.wire.decoder import Decoder, Rejected
from tests.fuzz.mutate import INPUT_BYTES_MAX, mutants
from tests.fuzz.promises import assert_promises


class Pairs(Decoder[bytes]):
    """A codec of two-byte packets: `FF` loses framing, a leading zero is rejected."""

    def decode_at(self, data: bytes | bytearray, start: int) -> tuple[bytes | Rejected, int] | None:
        pair = bytes(data[start : start + 2])
        if pair[:1] == b"\xff":
            raise FrameTooLarge("pair", 255, 254)
        if len(pair) < 2:
            return None
        return Rejected(FrameTooLarge("zero", 0, 0)) if pair[0] == 0 else pair, start + 2


class RaisesAnything(Pairs):
    def decode_at(self, data: bytes | bytearray, start: int) -> tuple[bytes | Rejected, int] | None:
        return (bytes([data[start + 1]]), start + 2) if len(data) > start else None


class DependsOnTheCut(Pairs):
    def decode_at(self, data: bytes | bytearray, start: int) -> tuple[bytes | Rejected, int] | None:
        return (bytes(data[start:]), len(data)) if len(data) > start else None


class Recovers(Pairs):
    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._failure = None
        super().feed(data)


def same(packet: bytes) -> bytes:
    return packet


def test_a_sound_decoder_passes_and_its_items_come_back() -> None:
    assert assert_promises(Pairs, same, b"abcd\x00") == [b"ab", b"cd", ("unread", 1)]
    rejected = ("rejected", FrameTooLarge, ("zero", 0, 0))
    assert assert_promises(Pairs, same, b"ab\x00xcd") == [b"ab", rejected, b"cd", ("unread", 0)]
    failed = ("failed", FrameTooLarge, ("pair", 255, 254))
    assert assert_promises(Pairs, same, b"abcd\xff\xffa") == [b"ab", b"cd", failed]


def test_what_is_no_wire_error_is_caught() -> None:
    with pytest.raises(IndexError):
        assert_promises(RaisesAnything, same, b"abc")


@pytest.mark.parametrize("make", [DependsOnTheCut, Recovers])
def test_a_broken_promise_is_caught(make: type[Pairs]) -> None:
    with pytest.raises(AssertionError):
        assert_promises(make, same, b"abcd\xff")


def test_an_encoder_that_does_not_give_the_packet_back_is_caught() -> None:
    for encode in (bytes.upper, lambda packet: packet + b"x", lambda packet: packet[:1]):
        with pytest.raises(AssertionError):
            assert_promises(Pairs, encode, b"abcd")


def test_mutants_are_the_same_every_time() -> None:
    seeds = [bytes(range(40)), b"x" * 30, b""]
    run = list(mutants(seeds, count=500, seed=1))
    assert run == list(mutants(seeds, count=500, seed=1))
    assert run != list(mutants(seeds, count=500, seed=2))
    assert len(set(run)) > 250
    assert max(map(len, run)) <= INPUT_BYTES_MAX
