"""Frames of one direction of a connection."""

from collections.abc import Iterator

from penstock.decode.findings import Fault, Frame, Trouble, TroubleKind
from penstock.decode.layout import Field, walk
from penstock.decode.reading import Side, reading_of
from penstock.errors import WireError
from penstock.limits import DECODE_SEARCH_BYTES_MAX
from penstock.protocols import Protocol
from penstock.wire.decoder import Rejected

__all__ = ["Direction"]


class Direction:
    """Decodes bytes and gaps of one direction, in order, into frames and troubles.

    After framing is lost, the next frame is searched by its mark, up to a limit. If the protocol
    has no mark, the rest is not read.
    """

    def __init__(
        self, side: Side, protocol: Protocol, *, connection: int, from_client: bool
    ) -> None:
        self._side = side
        self._protocol = protocol
        self._connection = connection
        self._from_client = from_client
        self._buffer = bytearray()
        self._base = 0  # position of the buffer in the stream
        self._lost_at: int | None = None
        self._search_from = 0
        self._stopped = False
        self._frames = 0

    def feed(self, data: bytes) -> Iterator[Frame | Trouble]:
        """Add the next bytes; yield complete frames and troubles."""
        self._buffer += data
        yield from self._read(final=False)

    def gap(self, length: int) -> Iterator[Frame | Trouble]:
        """Skip `length` bytes that the capture lacks."""
        yield from self._read(final=True)
        if not self._stopped:
            yield from self._left()
            offset = self._base + len(self._buffer)
            text = f"the capture lacks {length} bytes; {self._outlook}"
            yield self._trouble(TroubleKind.GAP, length, Fault("gap", offset, text))
        self._base += len(self._buffer) + length
        self._buffer.clear()
        if not self._stopped:
            self._stopped = not self._side.mark
            self._lost_at = self._search_from = self._base

    def finish(self) -> Iterator[Frame | Trouble]:
        """Yield the findings of the remaining bytes."""
        yield from self._read(final=True)
        yield from self._left()

    def _left(self) -> Iterator[Trouble]:
        """Yield the trouble of trailing bytes that form no complete frame."""
        end = self._base + len(self._buffer)
        if self._lost_at is not None:
            length = end - self._lost_at
            if length:
                text = f"{length} bytes from here on are not read"
                fault = Fault("unread", self._lost_at, text)
                yield self._trouble(TroubleKind.UNREAD, length, fault)
        elif self._buffer:
            data = bytes(self._buffer)
            name, layout = self._side.layout(data)
            text = f"the capture ends inside this frame ({name}), {len(data)} bytes of it are there"
            fields = walk(layout, data, base=self._base, order=self._side.order, until_fault=True)
            fault = Fault("cut short", self._base, text)
            yield self._trouble(TroubleKind.CUT_SHORT, len(data), fault, data=data, fields=fields)

    # --- Reading ----------------------------------------------------------------------------------

    def _read(self, *, final: bool) -> Iterator[Frame | Trouble]:
        position = 0
        try:
            while not self._stopped:
                if self._lost_at is not None:
                    found = self._search(position, final=final)
                    if found is None:
                        break
                    if trouble := self._skipped(found):
                        yield trouble
                    position = found
                try:
                    step = self._side.decode_at(self._buffer, position)
                except WireError as error:
                    yield self._lost(position, error)
                    continue
                if step is None:
                    break
                packet, end = step
                frame = self._frame(position, end, packet)
                position = end
                yield frame
        finally:
            if self._lost_at is None:
                del self._buffer[:position]
                self._base += position

    def _frame(self, start: int, end: int, packet: object) -> Frame:
        data = bytes(self._buffer[start:end])
        base = self._base + start
        name, layout = self._side.layout(data)
        fields = walk(layout, data, base=base, order=self._side.order)
        fault = None
        if isinstance(packet, Rejected):
            fault = self._fault(packet.error, data, fields, base)
        self._side.passed(packet)
        self._frames += 1
        return Frame(
            self._connection,
            self._from_client,
            self._frames,
            base,
            base + len(data),
            name,
            data,
            fields,
            fault,
        )

    def _lost(self, position: int, error: WireError) -> Trouble:
        """Record that framing is lost at `position`."""
        rest = bytes(self._buffer[position:])
        base = self._base + position
        _, layout = self._side.layout(rest)
        fields = walk(layout, rest, base=base, order=self._side.order, until_fault=True)
        shown = rest[: fields[-1].end - base] if fields else b""
        fault = self._fault(error, rest, fields, base)
        self._stopped = not self._side.mark
        self._lost_at = base + (len(shown) if self._stopped else 1)
        self._search_from = self._lost_at
        with_outlook = fault._replace(text=f"{fault.text}; {self._outlook}")
        return self._trouble(TroubleKind.LOST, len(shown), with_outlook, data=shown, fields=fields)

    def _fault(self, error: WireError, data: bytes, fields: list[Field], base: int) -> Fault:
        offset = next((field.start for field in fields if field.fault), None)
        if offset is None:
            starts = {field.name: field.start for field in reversed(fields)}
            names = self._side.blamed(error, data)
            offset = next((starts[name] for name in names if name in starts), base)
        return Fault(reading_of(self._protocol).error_name(error), offset, str(error))

    # --- Searching --------------------------------------------------------------------------------

    @property
    def _outlook(self) -> str:
        if self._side.mark:
            return "the next frame is searched by its mark"
        return f"{self._protocol.label} has no mark to find the next frame by: it stops here"

    def _search(self, start: int, *, final: bool) -> int | None:
        """Return the position of the next complete valid frame, None if there is none yet.

        An incomplete frame at the end of the capture is skipped.
        """
        side, buffer, base = self._side, self._buffer, self._base
        position = max(start, self._search_from - base)
        while True:
            at = buffer.find(side.mark, position + side.mark_at)
            if at < 0:
                position = max(position, len(buffer) - side.mark_at - len(side.mark) + 1)
                break
            position = at - side.mark_at
            readable = self._is_frame(position)
            if readable:
                return position
            if readable is None and not final:
                break
            position += 1
        self._search_from = base + position
        self._stopped = self._search_from - (self._lost_at or 0) > DECODE_SEARCH_BYTES_MAX
        return None

    def _is_frame(self, position: int) -> bool | None:
        """Return whether a valid frame starts at `position`, None if it is incomplete."""
        try:
            step = self._side.decode_at(self._buffer, position)
        except WireError:
            return False
        return None if step is None else not isinstance(step[0], Rejected)

    def _skipped(self, position: int) -> Trouble | None:
        offset, self._lost_at = self._lost_at or 0, None
        length = self._base + position - offset
        if not length:
            return None
        text = f"{length} bytes are passed over; a frame starts behind them"
        return self._trouble(TroubleKind.SKIPPED, length, Fault("skipped", offset, text))

    def _trouble(
        self,
        kind: TroubleKind,
        length: int,
        fault: Fault,
        *,
        data: bytes = b"",
        fields: list[Field] | None = None,
    ) -> Trouble:
        offset = fields[0].start if fields else fault.offset
        return Trouble(
            self._connection,
            self._from_client,
            kind,
            offset,
            length,
            fault,
            data,
            tuple(fields or ()),
        )
