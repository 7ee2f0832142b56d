"""Whether the packages of the extra `tracing` are installed."""

from importlib.util import find_spec

__all__ = ["is_installed"]


def is_installed() -> bool:
    """Return whether spans can be exported; nothing of the SDK is loaded."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
