"""The brewery's topics and their herald channels."""

from penstock.protocols import Protocol

__all__ = ["CELLAR", "CHANNELS", "KETTLE", "ORDERS", "REPORT", "STOCK", "TANK", "topic_for"]

KETTLE = "brewery/kettle/temp"
CELLAR = "brewery/cellar/climate"
TANK = "brewery/tank/temp"
STOCK = "brewery/stock"
ORDERS = "brewery/orders"
REPORT = "brewery/report"

CHANNELS = {KETTLE: 1, CELLAR: 2, TANK: 3, STOCK: 4, ORDERS: 5, REPORT: 9}
"""The same as in penstock.toml. These topics exist from the start, as Rheos requires."""


def topic_for(topic: str, protocol: Protocol) -> str | int:
    """Return a topic as clients of a protocol name it: a channel for herald."""
    return CHANNELS[topic] if protocol.carries.channels else topic
