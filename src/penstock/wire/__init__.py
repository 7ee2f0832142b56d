"""Sans-I/O codecs of the five protocols: bytes in, values out, and the other way round."""
