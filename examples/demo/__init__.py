"""`make demo`: a brewery whose devices, service and shop speak five protocols, and its tables."""
