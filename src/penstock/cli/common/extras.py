"""Packages that belong to an extra of the distribution, and are missing without it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["EXTRAS", "missing_extra"]

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {"deltalake": "spark", "pandas": "spark", "py4j": "spark", "pyspark": "spark"}
)
"""The extra of each package that commands import without asking whether it is there."""


def missing_extra(error: Exception) -> str | None:
    """Return what is missing and how to install it; None if `error` is no missing extra."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return f"this needs {package}, which is not installed; install penstock-broker[{extra}]"
