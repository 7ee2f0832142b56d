"""Acknowledgments of messages of consumer groups: answers of clients, and bytes of their systems.

Clients acknowledge in the order in which they got messages, mostly. So a run of acknowledgments is
processed in one step, as far as it is in one lease.
"""

from collections.abc import Callable

from penstock.core.groups.group import Group, Member
from penstock.core.groups.ledger import Lease
from penstock.core.sessions import Session
from penstock.limits import (
    GROUP_POLL_FULL_SECONDS,
    GROUP_POLL_SECONDS,
    GROUP_REASON_CHARACTERS_MAX,
)
from penstock.ports import Clock

__all__ = ["Acknowledgments"]


class Acknowledgments:
    """Processes what members acknowledge, in all groups."""

    def __init__(
        self,
        *,
        wake: Callable[[Group], None],
        bury: Callable[[Group], None],
        changed: Callable[[Group], None],
        clock: Clock,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """Call `wake` when there is room for messages, `bury` when one may be dead."""
        self._wake = wake
        self._bury = bury
        self._changed = changed
        self._clock = clock
        self._later = later
        self._polled: dict[Member, None] = {}  # those whose bytes are awaited
        self._poll_number = 0  # of the poll that comes next; others that were planned are void
        self._poll_seconds = 0.0  # with which it was planned; 0 if none is

    # --- Answers ----------------------------------------------------------------------------------

    def expects(self, session: Session, identifier: int) -> bool:
        """Return whether an id on the wire is that of a message which a member has."""
        return any(member.by_id(identifier) is not None for member in session.memberships.values())

    def answered(self, session: Session, identifier: int, failure: str | None) -> bool:
        """Process the answer to a message, by its id on the wire; return whether it was known."""
        for member in session.memberships.values():
            found = member.by_id(identifier)
            if found is not None:
                lease, index = found
                self._settle(member, lease, index, index + 1, failure)
                return True
        for member in session.memberships.values():
            self.is_in_time(member)
        return False

    def answered_run(self, session: Session, first: int, count: int) -> int:
        """Process successful answers to ids that follow each other; return how many were known.

        It may be fewer than there are: those of one lease.
        """
        for member in session.memberships.values():
            found = member.by_id(first)
            if found is not None:
                lease, index = found
                end = lease.run_end(index, min(index + count, len(lease)))
                self._settle(member, lease, index, end, None)
                return end - index
        return 0

    def acknowledge(self, member: Member, numbers: range | None, failure: str | None) -> int:
        """Process the acknowledgment of messages by number; return how many the member had.

        None is the first message that it has.
        """
        if numbers is None:
            first = member.first_number
            numbers = range(0) if first is None else range(first, first + 1)
        count = 0
        number = numbers.start
        while number < numbers.stop:
            found = member.by_number(number)
            if found is None:
                number += 1
                continue
            lease, index = found
            end = lease.run_end(index, min(index + numbers.stop - number, len(lease)))
            count += end - index
            number += end - index
            self._settle(member, lease, index, end, failure)
        self.is_in_time(member)
        return count

    def _settle(
        self, member: Member, lease: Lease, first: int, end: int, failure: str | None
    ) -> None:
        group = member.group
        group.ledger.acknowledged(lease, now=self._clock.monotonic())
        if failure is None:
            group.ledger.done_run(lease, first, end)
        else:
            reason = failure[:GROUP_REASON_CHARACTERS_MAX] or "the member refused it"
            for index in range(first, end):
                group.ledger.fail(lease, index, reason)
            self._bury(group)
        self.is_in_time(member)
        self._changed(group)
        # A turn for each acknowledgment would cost more than it delivers: wait for some room.
        if failure is not None or group.ledger.held_by(member) <= group.share // 2:
            self._wake(group)

    def is_in_time(self, member: Member) -> None:
        """Let a member that was late take part again."""
        if member.is_late:
            member.set_late(is_late=False)
            self._wake(member.group)

    # --- Bytes ------------------------------------------------------------------------------------

    def sent(self, member: Member) -> None:
        """Await the acknowledgment of bytes, where the client does not answer."""
        if not member.answers:
            self._polled[member] = None
            self._poll_later(is_full=_is_full(member))

    def forget(self, member: Member) -> None:
        """Remove a member."""
        self._polled.pop(member, None)

    def _poll_later(self, *, is_full: bool) -> None:
        """Plan a poll, a soon one if a member waits for room; it replaces a late one."""
        seconds = GROUP_POLL_FULL_SECONDS if is_full else GROUP_POLL_SECONDS
        if not self._poll_seconds or seconds < self._poll_seconds:
            self._poll_seconds = seconds
            self._poll_number += 1
            number = self._poll_number
            self._later(seconds, lambda: self._poll(number))

    def _poll(self, number: int) -> None:
        if number != self._poll_number:
            return
        self._poll_seconds = 0.0
        now = self._clock.monotonic()
        for member in list(self._polled):
            if member.take_acknowledged(now):
                self._changed(member.group)
                if not _is_full(member):  # as with answers
                    self._wake(member.group)
            if not member.group.ledger.held_by(member):
                self._polled.pop(member, None)
        if self._polled:
            self._poll_later(is_full=any(_is_full(member) for member in self._polled))


def _is_full(member: Member) -> bool:
    """Return whether a member has most of the messages that it may have."""
    return member.group.ledger.held_by(member) > member.group.share // 2
