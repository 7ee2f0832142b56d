"""Pieces in, frames to the handler, whatever the cuts; nothing while paused."""

from penstock.transport.links import InputBuffer
from tests.support.fakes import RecordingLink
from tests.unit.transport.handlers import Echo


def new_input(step: int = 4) -> tuple[InputBuffer, Echo]:
    made = InputBuffer()
    made.handler = Echo(RecordingLink(), step)
    return made, made.handler


def test_what_the_handler_gets_does_not_depend_on_the_cuts() -> None:
    stream = bytes(range(24))
    for first in range(len(stream) + 1):
        for second in range(first, len(stream) + 1):
            made, handler = new_input()
            for piece in (stream[:first], stream[first:second], stream[second:]):
                made.feed(piece)
            assert handler.taken == stream


def test_while_paused_nothing_is_handed_on() -> None:
    made, handler = new_input()
    made.feed(b"abcde")
    assert made.pause()
    made.feed(b"fghi")
    made.flush()
    assert handler.taken == b"abcd"
    assert made.resume()
    made.flush()
    assert handler.taken == b"abcdefgh"


def test_each_pause_needs_its_own_resume() -> None:
    made, handler = new_input()
    assert made.pause()
    assert not made.pause()
    made.feed(b"abcd")
    assert not made.resume()
    assert made.paused
    made.flush()
    assert handler.taken == b""
    assert made.resume()
    made.flush()
    assert handler.taken == b"abcd"


def test_a_handler_that_resumes_while_it_takes_is_not_called_again_inside() -> None:
    class Resuming(Echo):
        def received(self, data: memoryview) -> int:
            made.pause()
            assert made.resume()
            made.flush()
            return super().received(data)

    made = InputBuffer()
    made.handler = Resuming(RecordingLink(), 4)
    for piece in (b"ab", b"cdef", b"gh"):
        made.feed(piece)
    assert made.handler.taken == b"abcdefgh"


def test_after_the_end_nothing_is_handed_on() -> None:
    made, handler = new_input()
    made.feed(b"ab")
    assert made.close() is handler
    made.feed(b"cdef")
    assert handler.taken == b""
    assert made.close() is None
