"""Arrow Flight in the broker: in threads of its own, past the event loop."""
