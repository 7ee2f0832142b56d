"""The proof of an address: rounds of PINGs, their answers, and what an address may be sent."""

import asyncio
from typing import Any

import pytest

from penstock.transport import address_proof
from penstock.transport.address_proof import PING_BYTES, AddressProof
from tests.unit.transport.conftest import Run
from tests.unit.transport.handlers import until


class Rounds:
    """A proof, with the PINGs that it sent and the calls of `advanced`."""

    def __init__(self, *, received: int = 1000, bits_needed: int = 100) -> None:
        self.sent: list[int] = []
        self.advances = 0
        self.proof = AddressProof(
            send_pings=self.sent.append, advanced=self._advanced, bits_needed=bits_needed
        )
        self.proof.received = received
        self.proof.want()
        self.proof.proceed()

    def _advanced(self) -> None:
        self.advances += 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_proof, "UDP_PROOF_WINDOW_MS", 10)
    monkeypatch.setattr(address_proof, "UDP_PROOF_SECONDS_MAX", 0.05)


def test_pings_count_as_sent(run: Run) -> None:
    async def check() -> None:
        rounds = Rounds()
        (pings,) = rounds.sent
        assert rounds.proof.sent == pings * PING_BYTES
        assert rounds.proof.room == 1000 - pings * PING_BYTES
        rounds.proof.cancel()

    run(check())


@pytest.mark.usefixtures("quick")
def test_the_right_number_is_judged_when_the_window_ends(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr(address_proof, "UDP_PROOF_SECONDS_MAX", 60.0)

    async def check() -> None:
        rounds = Rounds()
        for _ in range(rounds.sent[0]):
            rounds.proof.took_pongs(1)
        await until(lambda: rounds.advances)
        assert rounds.proof.bits > 0
        assert not rounds.proof.listening

    run(check())


@pytest.mark.usefixtures("quick")
def test_a_round_without_an_answer_ends_and_another_begins(run: Run) -> None:
    async def check() -> None:
        rounds = Rounds()
        await until(lambda: rounds.advances)
        rounds.proof.proceed()
        assert len(rounds.sent) == 2
        rounds.proof.cancel()

    run(check())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("answered", [False, True])
def test_nothing_happens_after_a_cancel(run: Run, *, answered: bool) -> None:
    async def check() -> None:
        rounds = Rounds()
        if answered:
            rounds.proof.took_pongs(1)
        rounds.proof.cancel()
        assert not rounds.proof.listening
        rounds.proof.took_pongs(1)
        await asyncio.sleep(0.1)
        assert rounds.advances == 0

    run(check())
