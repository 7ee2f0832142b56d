"""The suite of fleximq."""

from typing import Final

from penstock.conform.case import Suite
from penstock.conform.fleximq import (
    framing,
    headers,
    joining,
    keepalives,
    notices,
    requests,
    topics,
)
from penstock.conform.fleximq.peer import joined

__all__ = ["SUITE"]

SUITE: Final = Suite(
    "fleximq",
    (
        *joining.cases.cases(),
        *keepalives.cases.cases(),
        *topics.cases.cases(),
        *requests.cases.cases(),
        *notices.cases.cases(),
        *headers.cases.cases(),
        *framing.cases.cases(),
    ),
    joined,
)
