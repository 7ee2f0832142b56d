"""Opening what the options name."""

from pathlib import Path

from penstock.spark.files import Folder
from penstock.spark.options import Broker
from penstock.spark.origin import Origin
from penstock.spark.remote import Remote

__all__ = ["open_origin"]


def open_origin(where: Path | Broker) -> Origin:
    """Return what plans reading of a folder or a broker; raise CannotRead or FlightFailed."""
    return Folder(where) if isinstance(where, Path) else Remote(where)
