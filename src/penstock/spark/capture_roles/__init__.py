"""Roles: decoders of one side of a captured connection, for each protocol."""

from penstock.spark.capture_roles.role import Captured, Role, Tools, new_role

__all__ = ["Captured", "Role", "Tools", "new_role"]
