"""The brewery's topics, and what herald calls them."""

from penstock.protocols import Protocol

__all__ = ["CELLAR", "CHANNELS", "KETTLE", "ORDERS", "REPORT", "STOCK", "TANK", "named"]

KETTLE = "brewery/kettle/temp"
CELLAR = "brewery/cellar/climate"
TANK = "brewery/tank/temp"
STOCK = "brewery/stock"
ORDERS = "brewery/orders"
REPORT = "brewery/report"

CHANNELS = {KETTLE: 1, CELLAR: 2, TANK: 3, STOCK: 4, ORDERS: 5, REPORT: 9}
"""The same as in penstock.toml. Topics that it names exist from the start, as Rheos wants it."""


def named(topic: str, protocol: Protocol) -> str | int:
    """Return what clients of a protocol call a topic."""
    return CHANNELS[topic] if protocol.carries.channels else topic
