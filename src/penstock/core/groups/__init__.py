"""Consumer groups: durable positions in the log that members share."""

from penstock.core.groups.groups import GroupFigures, Groups
from penstock.core.groups.ledger import GroupSettings
from penstock.core.groups.redrives import Redriven

__all__ = ["GroupFigures", "GroupSettings", "Groups", "Redriven"]
