"""`make demo`: a brewery whose devices, service and shop use five protocols, and its tables."""
