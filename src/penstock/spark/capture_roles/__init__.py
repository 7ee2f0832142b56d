"""Roles: how each side of a captured connection becomes rows."""

from penstock.spark.capture_roles.role import Captured, Role, Tools, new_role

__all__ = ["Captured", "Role", "Tools", "new_role"]
