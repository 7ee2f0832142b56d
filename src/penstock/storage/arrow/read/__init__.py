"""The read path of the Arrow log."""
