"""Arrow Flight: how tables are read from a broker and written to it over the network."""
