"""The command line: one module for each command; the only place that prints or exits."""
