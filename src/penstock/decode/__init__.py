"""Decoding of captures: files to streams, streams to frames, frames to fields with offsets."""

from penstock.decode.capture import CaptureFormat, CaptureUnreadable, Connection, read_capture
from penstock.decode.connection import explain
from penstock.decode.findings import Finding, Frame, Heading, Trouble
from penstock.decode.layout import Field

__all__ = [
    "CaptureFormat",
    "CaptureUnreadable",
    "Connection",
    "Field",
    "Finding",
    "Frame",
    "Heading",
    "Trouble",
    "explain",
    "read_capture",
]
