"""Delivery is in order, without duplicates and without loss, whatever the network does.

More seeds: `PENSTOCK_SEEDS=5000 pytest tests/sim`. One seed: `PENSTOCK_SEED=17 pytest tests/sim`.
"""

import os

import pytest

from tests.sim.simulation import Simulation

SEEDS = int(os.environ.get("PENSTOCK_SEEDS", "200"))
BLOCK = 25


@pytest.mark.parametrize("block", range((SEEDS + BLOCK - 1) // BLOCK))
def test_every_client_receives_exactly_its_messages(block: int) -> None:
    if "PENSTOCK_SEED" in os.environ:
        seeds = range(int(os.environ["PENSTOCK_SEED"]), int(os.environ["PENSTOCK_SEED"]) + 1)
    else:
        seeds = range(block * BLOCK, min((block + 1) * BLOCK, SEEDS))
    compared = 0
    for seed in seeds:
        simulation = Simulation(seed)
        simulation.run()
        try:
            compared += simulation.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: PENSTOCK_SEED={seed} repeats it") from error
    assert compared > 100 * len(seeds), "too little happened to mean anything"
