"""The files of the Arrow log: segments, indexes and state."""
