"""Lines in the broker: what its clients ask for, and how messages reach them."""

from typing import ClassVar

from penstock._kernels.batch import Batch
from penstock.core.access import Principal
from penstock.core.encoders import Encoder, Rows
from penstock.core.sessions import Session
from penstock.errors import (
    AuthenticationFailed,
    BrokerFull,
    CallerError,
    InvalidTopicName,
    LogUnavailable,
    PeerError,
    WireError,
)
from penstock.gateway.base import Gateway
from penstock.model import ByteOrder
from penstock.ports import Receipt
from penstock.protocols import Protocol
from penstock.topic_names import check_topic_name
from tests.sixth.protocol import LINES
from tests.sixth.wire import Decoder, Line, encode

__all__ = ["LinesEncoder", "LinesGateway"]

OK = encode("ok")


class LinesEncoder(Encoder):
    """Encodes rows as `msg` lines: without a kernel, row by row."""

    def encode(self, batch: Batch, rows: Rows, *, order: ByteOrder) -> bytes:
        """See Encoder."""
        topics = self.context.topics
        return b"".join(
            encode(
                "msg",
                topics.name(batch.topic_id(row)).encode(),
                str(batch.sender(row).number).encode(),
                value=batch.value(row),
            )
            for row in (range(len(batch)) if rows is None else rows)
        )


class LinesGateway(Gateway):
    """One connection of Lines."""

    protocol: ClassVar[Protocol] = LINES

    def new_decoder(self) -> Decoder:
        """See the base class."""
        return Decoder(line_bytes_max=self.limits["line_bytes_max"])

    def scan(
        self, session: Session, data: memoryview, start: int, *, permits: bytearray | None
    ) -> int:
        """See the base class: publishes are decoded one by one."""
        topics = self.broker.topics
        rows: list[tuple[int, int, int]] = []
        while len(rows) < self.broker.batch.rows_max:
            try:
                step = self.decoder.decode_at(data, start)
            except WireError:  # the gateway meets it again, and answers it
                break
            if step is None or not isinstance(step[0], Line) or step[0].word != "pub":
                break
            line, end = step
            name = line.rest[0].decode("utf-8", "replace")
            try:
                check_topic_name(name)
            except InvalidTopicName:  # the gateway refuses it
                break
            known = topics.find(name)
            if known is None and permits is None:
                known = topics.intern(name)
            if known is None or (permits is not None and not any(permits[known : known + 1])):
                break
            rows.append((known, line.value_start, len(line.value)))
            start = end
        batch = self.broker.batch
        batch.fill(data, rows, protocol=LINES.number, order="big", sender=session.sender)
        return start

    def acknowledge_batch(self, session: Session, receipt: Receipt) -> None:
        """See the base class."""
        count = len(self.broker.batch)
        self.broker.acknowledge(session, receipt, OK * count, self._failed)

    def refuse_batch(self, session: Session, error: LogUnavailable) -> None:
        """See the base class."""
        session.reply(encode("err", str(error).encode()) * len(self.broker.batch))

    def _failed(self, answer: bytes) -> bytes:
        return encode("err", b"the message could not be written") * (len(answer) // len(OK))

    def topic_of(self, packet: Line) -> str | None:
        """See the base class."""
        return packet.rest[0].decode("utf-8", "replace") if packet.word == "pub" else None

    def handle(self, packet: Line) -> None:
        """See the base class."""
        session = self.session
        if packet.word == "hello" and session is None:
            self._join(packet.rest[0].decode("utf-8", "replace"))
        elif session is None or packet.word not in {"sub", "unsub", "ping"}:
            self._answer(encode("err", b"not now"))
        elif packet.word == "ping":
            self._answer(encode("pong"))
        else:
            pattern = packet.rest[0].decode("utf-8", "replace")
            if packet.word == "sub":
                self.subscribe(session, pattern, self._settle)
            else:
                self.broker.unsubscribe(session, pattern)
                self._answer(OK)

    def _join(self, name: str) -> None:
        try:
            principal = self.options.identify(self.link)
        except AuthenticationFailed:
            self._answer(encode("err", b"Lines has no credentials"))
            self.close()
            return
        self.authenticated(principal)
        self.run_connect_hooks(name, principal, lambda: self._open(name, principal))

    def _open(self, name: str, principal: Principal) -> None:
        try:
            self.open_session(principal, name=name)
        except (BrokerFull, AuthenticationFailed) as error:
            self._answer(encode("err", str(error).encode()))
            self.close()
            return
        self._answer(OK)

    def _settle(self, error: PeerError | None) -> None:
        self._answer(OK if error is None else encode("err", str(error).encode()))

    def refuse_publish(self, packet: Line, error: PeerError | CallerError) -> None:
        """See the base class."""
        self._answer(encode("err", str(error).encode()))

    def rejected(self, error: WireError) -> None:
        """See the base class."""
        self._answer(encode("err", str(error).encode()))

    def framing_lost(self, error: WireError) -> None:
        """See the base class."""
        self._answer(encode("err", str(error).encode()))

    def _answer(self, line: bytes) -> None:
        if self.session is None:
            self.link.write(line)
        else:
            self.session.reply(line)
