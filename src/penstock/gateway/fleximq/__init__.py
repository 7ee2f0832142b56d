"""fleximq clients: topics, requests, notifications, broadcasts, and the broker as client 1."""

from penstock.gateway.fleximq.gateway import FleximqGateway, FleximqShared

__all__ = ["FleximqGateway", "FleximqShared"]
