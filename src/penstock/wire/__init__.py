"""Sans-I/O codecs of the five protocols: they decode bytes to packets and encode packets."""
