"""Gateways connect codecs and broker: a class for each protocol, an object for each connection."""
