"""The write path of the Arrow log."""
