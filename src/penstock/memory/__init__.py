"""The memory budget of the process: accounts, shares, and what happens when it is used up.

All memory that clients can make the broker hold is drawn from one budget. A connection has an
`Account`; its buffers are held in it by purpose. An account draws in blocks, so most changes of a
buffer touch the account alone. An account draws from three shares at a time: the whole budget, the
share of its address, and the share of its principal, or of all clients without authentication.

If a share is used up, `hold` returns False: the caller pauses, sends less, or refuses. `wait` calls
back when there is room. `tick` returns blocks that are no longer needed, and cuts connections that
hold memory without progress while others wait.
"""

from penstock.memory.account import Account, Holder
from penstock.memory.budget import MemoryBudget, unlimited_account
from penstock.memory.draw import Draw
from penstock.memory.purpose import Purpose
from penstock.memory.shares import SHARES, SMALL_SHARE, Share

__all__ = [
    "SHARES",
    "SMALL_SHARE",
    "Account",
    "Draw",
    "Holder",
    "MemoryBudget",
    "Purpose",
    "Share",
    "unlimited_account",
]
