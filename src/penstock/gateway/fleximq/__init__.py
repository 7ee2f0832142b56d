"""fleximq clients: topics, requests, notices and broadcasts, and the broker as client 1."""

from penstock.gateway.fleximq.gateway import FleximqGateway
from penstock.gateway.fleximq.shared import Shared, shared_by

__all__ = ["FleximqGateway", "Shared", "shared_by"]
