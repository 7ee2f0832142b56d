"""Proof that an address receives what is sent to it, for UDP, where a sender can be forged.

herald has no cookie, and its only frame that a client must answer, PING, has no body. So the number
of PINGs in a datagram is the secret: the broker sends between 1 and `choices` of them, at random,
and the client answers each with a PONG. The right number shows `log2(choices)` bits. A sender that
sees none of the PINGs guesses b bits with a chance of 1 in 2^b.

Until UDP_PROOF_BITS bits are shown, an address is sent at most `received * 2^bits` bytes. At first
that is no more than it sent. Later it is more, but on average a forged address never gets more than
was spent on it.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Final

from penstock.limits import (
    UDP_PROOF_BITS,
    UDP_PROOF_PINGS_MAX,
    UDP_PROOF_SECONDS_MAX,
    UDP_PROOF_WINDOW_MS,
)

__all__ = ["AddressProof"]

PING_BYTES: Final = 7


class AddressProof:
    """The proof of one address. `send_pings` sends that many PINGs in one datagram.

    `advanced` is called after each round with the right number of PONGs: more may be sent now.
    """

    __slots__ = (
        "_advanced",
        "_bits_needed",
        "_loop",
        "_pings",
        "_pongs",
        "_round_bits",
        "_send_pings",
        "_timer",
        "_wanted",
        "bits",
        "received",
        "sent",
    )

    def __init__(
        self,
        *,
        send_pings: Callable[[int], None],
        advanced: Callable[[], None],
        bits_needed: int = UDP_PROOF_BITS,
    ) -> None:
        self.received = 0
        """Bytes of all datagrams of the address."""
        self.sent = 0
        """Bytes of all datagrams to the address."""
        self.bits = 0
        self._bits_needed = bits_needed
        self._send_pings = send_pings
        self._advanced = advanced
        self._loop = asyncio.get_running_loop()
        self._wanted = False
        self._pings = 0  # sent in the present round; 0 if there is none
        self._pongs = 0  # received in the present round
        self._round_bits = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def complete(self) -> bool:
        """Whether the address has shown that it receives."""
        return self.bits >= self._bits_needed

    @property
    def room(self) -> int:
        """Bytes that may be sent to the address now."""
        return (self.received << self.bits) - self.sent

    @property
    def reserve(self) -> int:
        """Bytes of `room` that the next round needs; 0 if none is to begin."""
        return 2 * PING_BYTES if self._wanted and not self._pings else 0

    @property
    def listening(self) -> bool:
        """Whether PONGs are awaited."""
        return self._pings > 0

    def want(self) -> None:
        """Ask for the proof; rounds begin with `proceed`."""
        self._wanted = True

    def proceed(self) -> None:
        """Begin a round if the proof is wanted, none is open and there is room for it."""
        if not self._wanted or self._pings:
            return
        most = min(UDP_PROOF_PINGS_MAX, max(1, self.room // PING_BYTES))
        self._round_bits = most.bit_length() - 1  # choices are a power of two
        if self._round_bits < 1:
            return
        self._pings = 1 + secrets.randbelow(1 << self._round_bits)
        self._pongs = 0
        self.sent += self._pings * PING_BYTES
        self._send_pings(self._pings)
        self._timer = self._loop.call_later(UDP_PROOF_SECONDS_MAX, self._unanswered)

    def took_pongs(self, count: int) -> None:
        """Count PONGs. The first opens a window in which all others must arrive."""
        if not self._pings or not count:
            return
        if not self._pongs:
            self._stop_timer()
            self._timer = self._loop.call_later(UDP_PROOF_WINDOW_MS / 1000, self._judge)
        self._pongs += count

    def _judge(self) -> None:
        """Compare the numbers; a wrong one loses all bits shown so far."""
        self.bits = self.bits + self._round_bits if self._pongs == self._pings else 0
        self._pings = 0
        self._advanced()

    def _unanswered(self) -> None:
        """Begin another round with another number: a datagram was lost."""
        self._pings = 0
        self._advanced()

    def cancel(self) -> None:
        """Stop: the session has ended, or the proof is complete."""
        self._wanted = False
        self._pings = 0
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
