class Gathered:
    """Frames whose large values stay in the buffer of the batch that they were received in.

    Encoders return it, if `Batch.lends` is set. The values are there until the batch is cleared.
    """

    def __len__(self) -> int:
        """Return the size of all frames."""

    def send(self, descriptor: int) -> int:
        """Send the frames to a socket; return how many bytes the system took, without waiting.

        An error of the socket is not raised: the next write to it fails too.
        """

    def copied(self) -> bytes:
        """Return a copy of all bytes."""

    def rest(self, start: int) -> list[bytes | memoryview]:
        """Return a copy of all bytes from `start` on, in pieces; calls share the pieces."""
