"""Every message of a consumer group is acknowledged once in the end, or is in the dead letters.

More seeds: `PENSTOCK_SEEDS=5000 pytest tests/sim/test_groups.py`. One: `PENSTOCK_SEED=17`.
"""

import os

import pytest

from tests.sim.group_simulation import GroupSimulation

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "120"))
BLOCK = 30


@pytest.mark.parametrize("block", range((SEEDS + BLOCK - 1) // BLOCK))
def test_every_message_of_a_group_is_done_or_dead(block: int) -> None:
    if "PENSTOCK_SEED" in os.environ:
        seeds = range(int(os.environ["PENSTOCK_SEED"]), int(os.environ["PENSTOCK_SEED"]) + 1)
    else:
        seeds = range(block * BLOCK, min((block + 1) * BLOCK, SEEDS))
    processed = 0
    for seed in seeds:
        simulation = GroupSimulation(seed)
        try:
            simulation.run()
            processed += simulation.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: PENSTOCK_SEED={seed} repeats it") from error
    assert processed > 100 * len(seeds), "too little happened to mean anything"
