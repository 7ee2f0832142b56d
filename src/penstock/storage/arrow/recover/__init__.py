"""Recovery and verification of the Arrow log."""
