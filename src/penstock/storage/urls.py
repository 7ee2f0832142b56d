"""URLs of object stores."""

from typing import Final
from urllib.parse import urlsplit

__all__ = ["SCHEMES", "is_url", "url_problem"]

SCHEMES: Final = ("s3", "gs", "abfss", "file")
"""Schemes of URLs that can be read and written."""


def is_url(place: str) -> bool:
    """Return whether a place is a URL, not a path of this machine."""
    return "://" in place


def url_problem(url: str) -> str | None:
    """Return why a URL cannot be used for an object store, None if it can.

    The text does not repeat the URL, which may have a password in it by mistake.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        return f"expected a URL that begins with one of {known}"
    if parts.password or (parts.username and parts.scheme != "abfss"):
        return "a URL has no credentials; set them in the environment"
    if parts.query or parts.fragment:
        return "a URL has no ? and no #; set options in the environment"
    if parts.scheme != "file" and not parts.netloc:
        return "the URL has no bucket"
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        return "expected file:///path"
    return None
