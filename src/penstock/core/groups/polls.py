"""Polls links for the bytes that the clients' systems have acknowledged.

A link is polled once for all groups of its client. To bound the time for a link, it is polled less
often if its client is in many groups, and less and less often while it has no progress.
"""

from collections.abc import Callable

from penstock.core.groups.group import Group, Member
from penstock.core.sessions import Session
from penstock.limits import (
    GROUP_POLL_FULL_SECONDS,
    GROUP_POLL_MEMBER_SECONDS,
    GROUP_POLL_SECONDS,
    GROUP_POLL_SECONDS_MAX,
)
from penstock.ports import AcknowledgedLink, Clock

__all__ = ["Polls", "is_full"]


class _PolledLink:
    """A polled link, and the members of its client that have messages."""

    __slots__ = ("acknowledged", "is_full", "members", "number", "pause_seconds", "planned_seconds")

    def __init__(self) -> None:
        self.members: dict[Member, None] = {}
        self.acknowledged = -1  # bytes, at the last poll
        self.is_full = False  # whether one of the members waits for room
        self.number = 0  # of the planned poll; those with other numbers do nothing
        self.planned_seconds = 0.0  # delay of the planned poll; 0 if none is planned
        self.pause_seconds = 0.0  # doubled by each poll without progress; 0 after progress

    @property
    def seconds(self) -> float:
        """The time to the next poll."""
        shortest = GROUP_POLL_FULL_SECONDS if self.is_full else GROUP_POLL_SECONDS
        return max(shortest, self.pause_seconds, len(self.members) * GROUP_POLL_MEMBER_SECONDS)


class Polls:
    """Polls the links of members whose protocols have no acknowledgments."""

    def __init__(
        self,
        *,
        acknowledged: Callable[[Member], None],
        clock: Clock,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """Call `acknowledged` when a member's client has acknowledged messages."""
        self._acknowledged = acknowledged
        self._clock = clock
        self._later = later
        self._polled: dict[Session, _PolledLink] = {}

    def await_bytes(self, member: Member) -> None:
        """Poll the link of a member that got messages."""
        polled = self._polled.get(member.session)
        if polled is None:
            polled = self._polled[member.session] = _PolledLink()
        polled.members[member] = None
        polled.is_full = polled.is_full or is_full(member)
        self._plan(member.session, polled)

    def forget(self, member: Member) -> None:
        """Remove a member."""
        polled = self._polled.get(member.session)
        if polled is not None:
            polled.members.pop(member, None)
            if not polled.members:
                del self._polled[member.session]

    def _plan(self, session: Session, polled: _PolledLink) -> None:
        """Plan the next poll, unless an earlier one is planned."""
        seconds = polled.seconds
        if not polled.planned_seconds or seconds < polled.planned_seconds:
            polled.planned_seconds = seconds
            polled.number += 1
            number = polled.number
            self._later(seconds, lambda: self._poll(session, polled, number))

    def _poll(self, session: Session, polled: _PolledLink, number: int) -> None:
        if number != polled.number or self._polled.get(session) is not polled:
            return
        polled.planned_seconds = 0.0
        if self._has_progress(session, polled):
            polled.pause_seconds = 0.0
            self._take(polled)
            if not polled.members:
                self._polled.pop(session, None)
                return
        else:
            least = GROUP_POLL_FULL_SECONDS if polled.is_full else GROUP_POLL_SECONDS
            polled.pause_seconds = min(max(2 * polled.pause_seconds, least), GROUP_POLL_SECONDS_MAX)
        self._plan(session, polled)

    def _has_progress(self, session: Session, polled: _PolledLink) -> bool:
        link = session.link
        if not isinstance(link, AcknowledgedLink):
            return not link.buffered
        acknowledged = link.acknowledged()
        has_progress = acknowledged != polled.acknowledged
        polled.acknowledged = acknowledged
        return has_progress

    def _take(self, polled: _PolledLink) -> None:
        now = self._clock.monotonic()
        known = polled.acknowledged if polled.acknowledged >= 0 else None
        for member in list(polled.members):
            if member.take(known, now=now):
                self._acknowledged(member)
            if not member.group.ledger.held_by(member):
                polled.members.pop(member, None)
        polled.is_full = any(is_full(member) for member in polled.members)


def is_full(member: Member) -> bool:
    """Return whether a member has most of the messages that it may have."""
    group: Group = member.group
    return group.ledger.held_by(member) > group.share // 2
