"""Acknowledgments of messages of consumer groups: answers of clients, and bytes of their systems.

Clients acknowledge in the order in which they got messages, mostly. So a run of acknowledgments is
processed in one step, as far as it is in one lease.
"""

from collections.abc import Callable

from penstock.core.groups.group import Group, Member
from penstock.core.groups.ledger import Lease
from penstock.core.groups.polls import Polls, is_full
from penstock.core.sessions import Session
from penstock.limits import GROUP_REASON_BYTES, GROUP_REASON_CHARACTERS_MAX
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
        self._polls = Polls(acknowledged=self._taken, clock=clock, later=later)

    # --- Answers ----------------------------------------------------------------------------------

    def expects(self, session: Session, identifier: int) -> bool:
        """Return whether an id on the wire is that of a message which a member has."""
        return self._found(session, identifier) is not None

    def _found(self, session: Session, identifier: int) -> tuple[Member, Lease, int] | None:
        """Return the message with an id on the wire, None if the session does not have it."""
        found = None if session.leases is None else session.leases.by_id(identifier)
        if found is None:
            return None
        lease, index = found
        member = lease.member
        if not isinstance(member, Member) or member not in member.group.members:
            return None  # it has left the group
        return member, lease, index

    def answered(self, session: Session, identifier: int, failure: str | None) -> bool:
        """Process the answer to a message, by its id on the wire; return whether it was known."""
        found = self._found(session, identifier)
        if found is not None:
            member, lease, index = found
            self._settle(member, lease, index, index + 1, failure)
            return True
        for member in session.memberships.values():
            self.is_in_time(member)
        return False

    def answered_run(self, session: Session, first: int, count: int) -> int:
        """Process successful answers to ids that follow each other; return how many were known.

        It may be fewer than there are: those of one lease.
        """
        found = self._found(session, first)
        if found is None:
            return 0
        member, lease, index = found
        end = lease.run_end(index, min(index + count, len(lease)))
        self._settle(member, lease, index, end, None)
        return end - index

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
            reason, size = _kept_reason(group, lease, end - first, failure)
            for index in range(first, end):
                group.ledger.fail(lease, index, reason, reason_bytes=size)
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
            self._polls.await_bytes(member)

    def forget(self, member: Member) -> None:
        """Remove a member."""
        self._polls.forget(member)

    def _taken(self, member: Member) -> None:
        self._changed(member.group)
        if not is_full(member):  # as with answers
            self._wake(member.group)


def _kept_reason(group: Group, lease: Lease, count: int, text: str) -> tuple[str, int]:
    """Return the reason why messages failed, and the memory that it takes for each of them.

    The text of the member is left out if there is no memory to keep it until the dead letters are
    written.
    """
    reason = text[:GROUP_REASON_CHARACTERS_MAX]
    if reason and lease.failures + 1 >= group.ledger.settings.deliveries_max:
        size = GROUP_REASON_BYTES + len(reason) * (1 if reason.isascii() else 4)
        if group.memory.has_room_for(size * count):
            return reason, size
    return "the member refused it", 0
