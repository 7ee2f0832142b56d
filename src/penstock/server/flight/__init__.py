"""The Arrow Flight service of the broker, in threads of its own beside the event loop."""
