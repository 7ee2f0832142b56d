"""What the API says about the consumers of a group that has no members at this broker."""

import time

import pytest

from penstock.ports import GroupState
from penstock.ports.storage import GroupProgress
from penstock.server.http.log_queries import consumers_of

MINUTE_US = 60_000_000


@pytest.mark.parametrize(
    ("progress", "silent_us", "consumers"),
    [
        (None, 0, "external"),
        (GroupProgress(next=5), 0, "none"),
        (GroupProgress(next=5, used=True, node=0), 0, "none"),
        (GroupProgress(next=5, used=True, node=1), 0, "other-node"),
        (GroupProgress(next=5, used=True, node=1), MINUTE_US, "none"),  # it was killed
    ],
)
def test_a_group_without_members_here_may_have_them_at_another_node(
    progress: GroupProgress | None, silent_us: int, consumers: str
) -> None:
    updated_us = time.time_ns() // 1_000 - silent_us
    state = GroupState("job", {0: 5}, updated_us=updated_us, progress=progress)
    assert consumers_of(state.summary, node=0) == consumers
