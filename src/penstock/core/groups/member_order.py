"""The members of a consumer group in the order in which they get messages.

The member with the fewest messages comes first; of several, the one whose last turn is the oldest.
Late members come after all others.

The order is a heap, and each change of a member adds an entry. Outdated entries are removed when
they reach the top, or all at once when they outnumber the members. So the time of a change hardly
depends on the number of members.
"""

import heapq
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from penstock.core.groups.group import Group, Member

__all__ = ["MemberOrder"]

_Entry: TypeAlias = "tuple[int, int, int, Member]"  # messages, turn, number, member
_OUTDATED_MIN: Final = 64


class MemberOrder:
    """Finds the member that gets the next messages of a group."""

    def __init__(self, group: "Group") -> None:
        self._group = group
        self._in_time: list[_Entry] = []
        self._late: list[_Entry] = []
        self.late: dict[Member, None] = {}
        """The members that are late."""
        self.blocked: dict[Member, None] = {}
        """Members whose links took no more bytes when messages were to be sent."""

    def add(self, member: "Member") -> None:
        """Add a member, or note that it is late, or in time again."""
        if member.is_late:
            self.late[member] = None
        else:
            self.late.pop(member, None)
        self._push(member)

    def remove(self, member: "Member") -> None:
        """Remove a member that has left its group."""
        self.late.pop(member, None)
        self.blocked.pop(member, None)

    def unblock(self, member: "Member") -> None:
        """Let a member whose link may take bytes again get messages."""
        if member in self.blocked:
            del self.blocked[member]
            self._push(member)

    def block(self, member: "Member") -> None:
        """Let a member get no messages until `unblock`."""
        self.blocked[member] = None

    @property
    def first(self) -> "Member | None":
        """The member that gets the next messages; None if no member has room."""
        ledger = self._group.ledger
        if ledger.leased >= ledger.settings.unacked_max:
            return None
        return self.first_in_time or self._first(self._late)

    @property
    def first_in_time(self) -> "Member | None":
        """The first member that is not late; None if no such member has room."""
        for member in self._group.ledger.take_touched():
            if member in self._group.members and member not in self.blocked:
                self._push(member)
        return self._first(self._in_time)

    @property
    def ready(self) -> int:
        """An estimate of the number of members that have room; at least 1."""
        group = self._group
        full = group.ledger.leased // group.share
        return max(1, len(group.members) - len(self.late) - len(self.blocked) - full)

    def _first(self, entries: list[_Entry]) -> "Member | None":
        share = self._group.share
        while entries:
            held, _, _, member = entries[0]
            if entries[0] != self._entry(member) or not self._is_in(entries, member):
                heapq.heappop(entries)
            elif held >= share:
                return None
            elif member.takes_bytes:
                return member
            else:
                heapq.heappop(entries)
                self.blocked[member] = None
        return None

    def _is_in(self, entries: list[_Entry], member: "Member") -> bool:
        return (
            member in self._group.members
            and member not in self.blocked
            and entries is self._entries(member)
        )

    def _entries(self, member: "Member") -> list[_Entry]:
        return self._late if member.is_late else self._in_time

    def _entry(self, member: "Member") -> _Entry:
        return self._group.ledger.held_by(member), member.turn, member.number, member

    def _push(self, member: "Member") -> None:
        entries = self._entries(member)
        heapq.heappush(entries, self._entry(member))
        members = self._group.members
        if len(entries) > 2 * len(members) + _OUTDATED_MIN:
            entries[:] = [self._entry(each) for each in members if self._is_in(entries, each)]
            heapq.heapify(entries)
