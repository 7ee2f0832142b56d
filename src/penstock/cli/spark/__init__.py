"""Commands that use Spark: `sql` and `pipeline`."""
