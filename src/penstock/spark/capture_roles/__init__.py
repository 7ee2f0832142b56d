"""Roles: decoders of one side of a captured connection, for each protocol."""

from penstock.spark.capture_roles.role import CaptureContext, Captured, Role, new_role

__all__ = ["CaptureContext", "Captured", "Role", "new_role"]
