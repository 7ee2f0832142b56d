"""Delivery of messages to subscribers as they are published."""

from functools import partial

from penstock._kernels.batch import Batch
from penstock._kernels.gathered import Gathered
from penstock.core.audiences import Audience
from penstock.core.catch_up import CatchUp
from penstock.core.counters import Counters, TopicCounts
from penstock.core.encoders import Encoders
from penstock.core.encoders.encoder import Rows
from penstock.core.position_marks import PositionMarks
from penstock.core.routing import Router
from penstock.core.sessions import Session
from penstock.core.timers import Timers
from penstock.core.traces import Traced, Traces
from penstock.limits import MEMORY_BLOCK_BYTES
from penstock.ports import LogWriter, Receipt

__all__ = ["LiveDelivery"]


class LiveDelivery:
    """Encodes batches once for each audience, and writes them to the sessions that keep up.

    With `catch_up`, a session that does not keep up is served from the log. Without it, publishers
    are held for such a session, for `hold_seconds_max`; then it loses messages, or is disconnected.
    """

    def __init__(
        self,
        *,
        log: LogWriter,
        router: Router,
        encoders: Encoders,
        counters: Counters,
        topic_counts: TopicCounts,
        timers: Timers,
        marks: PositionMarks,
        out_buffer_bytes_max: int,
        hold_seconds_max: float,
        disconnects_slow: bool,
        waits_for_commit: bool,
    ) -> None:
        self.catch_up: CatchUp | None = None
        self.traces: Traces | None = None
        """Traces of sampled messages; None if there are none."""
        self._log = log
        self._router = router
        self._encoders = encoders
        self._counters = counters
        self._topic_counts = topic_counts
        self._timers = timers
        self._marks = marks
        self._out_buffer_bytes_max = out_buffer_bytes_max
        self._hold_seconds_max = hold_seconds_max
        self._disconnects_slow = disconnects_slow
        self._waits_for_commit = waits_for_commit
        self._encoded: Rows = None  # the rows of a batch that were encoded last

    def fan_out(self, sender: Session | None, batch: Batch, receipt: Receipt) -> None:
        """Deliver the rows of `batch` to all subscribers, unless they wait for its commit."""
        self._topic_counts.add(batch, receipt.first_offset)
        if self.traces is not None:
            first = receipt.first_offset
            traced = self.traces.sample(batch, partition=self._log.partition, first=first)
            if traced is not None:
                self._fan_out_traced(self.traces, traced, sender, batch, receipt)
                return
        if self._waits_for_commit:
            return
        for audience in self._router.audiences(batch):
            self._deliver(sender, batch, audience, receipt.first_offset)

    def _fan_out_traced(
        self,
        traces: Traces,
        traced: Traced,
        sender: Session | None,
        batch: Batch,
        receipt: Receipt,
    ) -> None:
        """Deliver a batch of which a message is traced."""
        arrived_us = batch.timestamp_us
        name = "" if sender is None else sender.name
        start_us = traces.appended(traced, receipt, arrived_us=arrived_us, sender=name)
        if not self._waits_for_commit:
            topic, sessions = batch.topic_id(traced.row), 0
            for audience in self._router.audiences(batch):
                reached = self._deliver(sender, batch, audience, receipt.first_offset)
                if self._router.wants(audience, topic):
                    sessions += reached
            traces.delivered(traced, start_us=start_us, sessions=sessions)
        traces.received(traced, arrived_us=arrived_us)

    def _deliver(self, sender: Session | None, batch: Batch, audience: Audience, first: int) -> int:
        """Deliver an audience its rows of `batch`, whose first offset is `first`.

        Return how many sessions got them at once.
        """
        catch_up = None if self._disconnects_slow else self.catch_up
        number = self._log.partition
        frames: bytes | Gathered | None = None
        count, reached, places = 0, 0, b""
        for receiver in audience.sessions:
            if receiver is sender and not receiver.echo:
                continue
            feed = receiver.feeds.get(number) if receiver.feeds else None
            if feed is not None:
                if feed.joins_at is None or feed.joins_at > first:
                    continue  # it is served from the log
            elif catch_up is not None and receiver.link.congested:
                catch_up.fall_behind(receiver, catch_up.own, first)
                continue
            if frames is None:
                if audience.wanted is None:
                    frames, count = self._encoders.encode(audience.encoding, batch), len(batch)
                    self._encoded = self._encoders.encoded
                else:
                    frames, count = self._encode_wanted(audience, audience.wanted, batch)
            if receiver.mark is not None and not places:
                places = self._marks.places(
                    batch, self._encoded, partition=number, first=first, final=False
                )
            if (
                len(frames) > MEMORY_BLOCK_BYTES
                and feed is None
                and catch_up is not None
                and not receiver.link.account.has_room(len(frames))
            ):
                catch_up.fall_behind(receiver, catch_up.own, first)
                self._timers.after(0.0, partial(catch_up.wake, receiver))
                continue
            if feed is not None:
                mark = receiver.mark(places) if receiver.mark is not None else b""
                feed.enqueue(mark + _copied(frames), count, receiver.link.account)
                continue
            if self.write(receiver, frames, count, places):
                reached += 1
            if self.catch_up is None and receiver.link.congested and not receiver.slow and sender:
                self._hold(sender, receiver)
        if frames is not None and reached:
            protocol = audience.encoding.protocol
            self._counters.messages_sent[protocol] += reached * count
            self._counters.bytes_sent[protocol] += reached * len(frames)
        return reached

    def _encode_wanted(
        self, audience: Audience, wanted: bytes, batch: Batch
    ) -> tuple[bytes | Gathered, int]:
        """Return the frames for an audience that gets some of the rows, and their number."""
        rows = batch.select(
            self._router.route_of_topic, wanted, kind_of_route=audience.kind_of_route
        )
        frames = self._encoders.encode(audience.encoding, batch, rows)
        self._encoded = self._encoders.encoded
        return frames, len(rows)

    def send(self, session: Session, frames: bytes, count: int, *, payload: bytes = b"") -> None:
        """Send `count` messages to one client, or drop them if its out-buffer is full.

        `payload` is the end of the last message: clients that get the same object share it.
        """
        if self.write(session, frames, count, payload=payload):
            protocol = session.encoding.protocol
            self._counters.messages_sent[protocol] += count
            self._counters.bytes_sent[protocol] += len(frames) + len(payload)

    def write(
        self,
        session: Session,
        frames: bytes | Gathered,
        count: int,
        places: bytes = b"",
        *,
        payload: bytes = b"",
    ) -> bool:
        """Write `count` messages to one client; drop them and return False if it is too slow.

        A client that asked for positions gets `places` before them.
        """
        link = session.link
        if link.buffered > self._out_buffer_bytes_max or link.account.overdrawn:
            protocol = session.encoding.protocol
            if self._disconnects_slow:
                if not session.dropped:  # count it once: closing may take a while
                    self._counters.cut_off[protocol] += 1
                link.abort()
            session.dropped += count
            self._counters.messages_dropped[protocol] += count
            return False
        if places and session.mark is not None:
            link.write(session.mark(places))
        if isinstance(frames, Gathered):
            link.write_gathered(frames)
        else:
            link.write(frames)
        session.messages_sent += count
        session.bytes_sent += len(frames)
        if payload:
            link.write(payload)
            session.bytes_sent += len(payload)
        return True

    # --- Held publishers --------------------------------------------------------------------------

    def _hold(self, publisher: Session, receiver: Session) -> None:
        """Pause `publisher` until `receiver` has caught up, at most `hold_seconds_max`."""
        if receiver.hold_timer is None:
            seconds = self._hold_seconds_max
            receiver.hold_timer = self._timers.after(
                seconds, lambda: self._hold_timed_out(receiver)
            )
        if publisher not in receiver.held_publishers:
            receiver.held_publishers[publisher] = None
            publisher.link.pause()

    def _hold_timed_out(self, receiver: Session) -> None:
        receiver.slow = receiver.link.congested
        self.release_held(receiver)

    def release_held(self, receiver: Session) -> None:
        """Resume the publishers that are held for a session."""
        if receiver.hold_timer is not None:
            receiver.hold_timer.cancel()
            receiver.hold_timer = None
        publishers = list(receiver.held_publishers)
        receiver.held_publishers.clear()
        for publisher in publishers:
            publisher.link.resume()


def _copied(frames: bytes | Gathered) -> bytes:
    """Return frames that do not depend on the batch they came from."""
    return frames.copied() if isinstance(frames, Gathered) else frames
