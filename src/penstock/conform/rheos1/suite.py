"""The suite of Rheos v1."""

from typing import Final

from penstock.conform.case import Suite
from penstock.conform.context import CaseContext
from penstock.conform.rheos import packets as shared_packets
from penstock.conform.rheos import peer, publishing, streams, topics
from penstock.conform.rheos.encoding import RHEOS1
from penstock.conform.rheos.sections import with_sections_of
from penstock.conform.rheos1 import packets

__all__ = ["SUITE"]


def enter(context: CaseContext) -> None:
    """Connect a client; raise Skipped if it is refused."""
    peer.enter(context, RHEOS1)


SUITE: Final = Suite(
    "rheos1",
    (
        *with_sections_of(
            1,
            (
                *shared_packets.cases.cases(RHEOS1),
                *topics.cases.cases(RHEOS1),
                *publishing.cases.cases(RHEOS1),
                *streams.cases.cases(RHEOS1),
            ),
        ),
        *packets.cases.cases(),
    ),
    enter,
)
