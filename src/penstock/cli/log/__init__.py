"""`penstock log`: list, read, verify and export a log on disk."""
