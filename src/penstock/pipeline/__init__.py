"""The pipeline: bronze, silver and gold tables of what the broker's log holds."""
