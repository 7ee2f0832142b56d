"""Where codecs meet the broker: a gateway for each protocol, one object for each connection."""
