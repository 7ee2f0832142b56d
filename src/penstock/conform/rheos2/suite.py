"""The suite of Rheos v2."""

from typing import Final

from penstock.conform.case import Suite
from penstock.conform.context import CaseContext
from penstock.conform.rheos import packets as shared_packets
from penstock.conform.rheos import peer, publishing, streams, topics
from penstock.conform.rheos.encoding import RHEOS2
from penstock.conform.rheos.sections import with_sections_of
from penstock.conform.rheos2 import packets, versions

__all__ = ["SUITE"]


def enter(context: CaseContext) -> None:
    """Connect a client; raise Skipped if it is refused."""
    peer.enter(context, RHEOS2)


SUITE: Final = Suite(
    "rheos2",
    (
        *with_sections_of(
            2,
            (
                *shared_packets.cases.cases(RHEOS2),
                *topics.cases.cases(RHEOS2),
                *publishing.cases.cases(RHEOS2),
                *streams.cases.cases(RHEOS2),
            ),
        ),
        *packets.cases.cases(),
        *versions.cases.cases(),
    ),
    enter,
)
