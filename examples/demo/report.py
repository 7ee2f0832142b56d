"""Chapter 8: a gold table goes back to a topic, and live clients hear it."""

from examples.demo.listeners import Ears, heard
from examples.demo.screen import chapter, seen
from examples.demo.topics import CHANNELS, REPORT

from penstock.protocols import PROTOCOLS
from penstock.protocols.herald import HERALD

__all__ = ["ROWS", "tell"]

ROWS = 2
"""One for the kettle, one for the tank."""


async def tell(ears: Ears) -> None:
    """Wait for the rows of the table at the clients that subscribed before Spark began."""
    chapter("8 Back to the devices", f"Spark published gold/report to {REPORT}.")
    for protocol in PROTOCOLS:
        values = sorted(await heard(ears[protocol, REPORT], ROWS))
        if protocol is HERALD:
            for value in values:
                seen(f"A display heard on herald channel {CHANNELS[REPORT]}: {value.decode()}")
    others = ", ".join(each.label for each in PROTOCOLS if each is not HERALD)
    seen(f"The same came to clients of {others}.")
