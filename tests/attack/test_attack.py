"""A short run of `make attack`: few clients, for some seconds."""

import os
from pathlib import Path

from tests.attack.attackers import ATTACKS
from tests.attack.run import attack

SECONDS = float(os.environ.get("PENSTOCK_ATTACK_SECONDS", "24"))


def test_honest_clients_are_served_while_attackers_do_what_they_can(tmp_path: Path) -> None:
    outcome = attack(tmp_path, seconds=SECONDS, honest=40, attackers=16, seed=7, figures=False)
    assert not outcome.faults, outcome.text()
    assert len(outcome.attackers["runs"]) > len(ATTACKS) // 2
