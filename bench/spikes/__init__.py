"""Experiments that were measured and are not shipped."""
