"""Chapter 8: the pipeline publishes a gold table, and live clients receive it."""

from examples.demo.screen import chapter, line
from examples.demo.subscribers import Subscriptions, receive
from examples.demo.topics import CHANNELS, REPORT

from penstock.protocols import PROTOCOLS
from penstock.protocols.herald import HERALD

__all__ = ["ROWS", "show"]

ROWS = 2
"""One for the kettle, one for the tank."""


async def show(subscriptions: Subscriptions) -> None:
    """Wait until the clients that subscribed before have received the rows of the table."""
    chapter("8 Back to the devices", f"Spark published gold/report to {REPORT}.")
    for protocol in PROTOCOLS:
        values = sorted(await receive(subscriptions[protocol, REPORT], ROWS))
        if protocol is HERALD:
            for value in values:
                line(f"A display received on herald channel {CHANNELS[REPORT]}: {value.decode()}")
    others = ", ".join(each.label for each in PROTOCOLS if each is not HERALD)
    line(f"Clients of {others} received the same.")
