"""What a peer sent and its handler has not taken yet, for links that get their input in pieces."""

from penstock.ports import Handler

__all__ = ["Intake"]


class Intake:
    """Keeps the end of a frame until the rest is there, and everything while it is paused."""

    __slots__ = ("_pauses", "_rest", "_taking", "handler")

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self._rest = bytearray()
        self._pauses = 0
        self._taking = False

    @property
    def paused(self) -> bool:
        """Whether a `pause` waits for its `resume`."""
        return self._pauses > 0

    def take(self, piece: bytes) -> None:
        """Let the handler take what it can of what waits and `piece`; raise what it raises."""
        if not self._rest and not self._pauses:
            with memoryview(piece) as view:
                taken = self._hand_on(view)
            if taken < len(piece):
                self._rest += piece[taken:]
            return
        self._rest += piece
        self._take_rest()

    def pause(self) -> bool:
        """Hand nothing on until `resume`; tell whether this is the first of several pauses."""
        self._pauses += 1
        return self._pauses == 1

    def resume(self) -> bool:
        """Take one pause back; tell whether it was the last. `take_waiting` then goes on."""
        self._pauses -= 1
        return self._pauses == 0

    def take_waiting(self) -> None:
        """Hand on what waits; raise what the handler raises."""
        if self._rest and not self._taking:  # else who is taking goes on by itself
            self._take_rest()

    def end(self) -> Handler | None:
        """Forget what waits; return the handler, which gets nothing more."""
        handler, self.handler = self.handler, None
        return handler

    def _take_rest(self) -> None:
        if self._pauses:
            return
        with memoryview(self._rest) as view:
            taken = self._hand_on(view)
        del self._rest[:taken]

    def _hand_on(self, view: memoryview) -> int:
        if self.handler is None:
            return len(view)
        self._taking = True
        try:
            return self.handler.received(view)
        finally:
            self._taking = False
