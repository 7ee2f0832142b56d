"""The pipeline: bronze, silver and gold tables of the broker's log."""
