"""Consumer groups: durable positions in the log that members share."""

from penstock.core.groups.groups import GroupFigures, Groups
from penstock.core.groups.ledger import GroupSettings

__all__ = ["GroupFigures", "GroupSettings", "Groups"]
