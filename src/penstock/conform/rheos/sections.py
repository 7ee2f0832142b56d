"""Sections of the Rheos specifications, as `v1 section|v2 section`."""

import dataclasses
from collections.abc import Iterable
from typing import Final

from penstock.conform.case import Case

__all__ = [
    "ACKNOWLEDGMENT",
    "DELIVERY",
    "NOTES",
    "OPERATIONS",
    "OVERVIEW",
    "REQUEST",
    "TOPIC",
    "TOPIC_ERRORS",
    "with_sections_of",
]

ACKNOWLEDGMENT: Final = "2. Acknowledgment Packet | Acknowledgement Packet"
REQUEST: Final = "1. Request Packet | Rheos Event Packet"
DELIVERY: Final = "3. Response Packet | Rheos Event Packet"
TOPIC: Final = "4. Topic Encoding | Body Layout"
OPERATIONS: Final = "1. Operation Codes | Operation Codes"
TOPIC_ERRORS: Final = "4. Topic Encoding, Errors | Error Codes"
NOTES: Final = "6. General Notes | Decoding Process"
OVERVIEW: Final = "Overview | Overview"


def with_sections_of(version: int, cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return cases of both versions with the sections of one."""
    return tuple(
        dataclasses.replace(case, section=case.section.split(" | ")[version - 1]) for case in cases
    )
