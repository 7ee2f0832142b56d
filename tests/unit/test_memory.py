"""The memory budget: shares, waiting, cutting, and nothing left when all clients have gone."""

import contextlib
import threading
import time
from collections.abc import Callable

import pytest

from penstock.errors import MemoryExhausted
from penstock.limits import (
    KIB,
    MEMORY_BLOCK_BYTES,
    MEMORY_CONNECTION_BYTES,
    MEMORY_STALL_SECONDS_MAX,
    MEMORY_UNFAIR_SECONDS_MAX,
    MEMORY_WAIT_SECONDS_MAX,
    MIB,
)
from penstock.memory import Account, MemoryBudget, Purpose, unlimited_account

BUDGET = 16 * MIB
SHARE = BUDGET // 4


class Connection:
    """See memory.Holder: what it holds is set by the test."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.moved = 0
        self.evicted = False
        account.holder = self

    def measure(self) -> int:
        return self.moved

    def evict(self) -> None:
        self.evicted = True
        self.account.close()


def new_budget(bytes_max: int, **shares: float) -> MemoryBudget:
    budget = MemoryBudget(bytes_max, **shares)
    budget.tick(99.5)
    return budget


def times(budget: MemoryBudget, *, seconds: float, start: float = 100.0) -> None:
    """Call `tick` twice a second, as a server does."""
    for step in range(int(2 * seconds) + 1):
        budget.tick(start + step / 2)


# --- Holding --------------------------------------------------------------------------------------


def test_an_account_draws_whole_blocks_and_small_changes_draw_nothing() -> None:
    budget = new_budget(BUDGET)
    account = budget.open("a")
    assert budget.used == MEMORY_CONNECTION_BYTES
    assert account.hold(Purpose.INPUT, 2 * KIB)
    assert budget.used == MEMORY_CONNECTION_BYTES
    assert account.hold(Purpose.INPUT, 10 * KIB)
    assert budget.used == MEMORY_BLOCK_BYTES
    assert account.hold(Purpose.OUTPUT, 40 * KIB)
    assert budget.used == MEMORY_BLOCK_BYTES
    assert account.hold(Purpose.OUTPUT, 2 * MIB)
    assert 2 * MIB < budget.used <= 2 * MIB + 2 * MEMORY_BLOCK_BYTES
    assert account.hold(Purpose.OUTPUT, 0)
    assert budget.used == MEMORY_BLOCK_BYTES
    account.close()
    assert budget.used == 0
    assert budget.left() == {}


def test_a_refused_hold_changes_nothing() -> None:
    budget = new_budget(BUDGET)
    account = budget.open("a")
    assert account.hold(Purpose.INPUT, 1 * MIB)
    used = budget.used
    assert not account.hold(Purpose.INPUT, SHARE + MEMORY_BLOCK_BYTES)
    assert (budget.used, account.size(Purpose.INPUT)) == (used, 1 * MIB)
    assert budget.refusals["address"] == 1


def test_unneeded_blocks_go_back_with_a_tick() -> None:
    budget = new_budget(BUDGET)
    account = budget.open("a")
    account.hold(Purpose.OUTPUT, 60 * KIB)
    account.hold(Purpose.OUTPUT, 0)
    assert budget.used == MEMORY_BLOCK_BYTES
    times(budget, seconds=1)
    assert budget.used == MEMORY_CONNECTION_BYTES


def test_what_must_be_held_is_held_beyond_the_limits_and_marks_the_account() -> None:
    budget = new_budget(BUDGET)
    account = budget.open("a")
    assert not account.force(Purpose.OUTPUT, 2 * BUDGET)
    assert account.overdrawn
    assert budget.used > BUDGET
    with pytest.raises(MemoryExhausted, match="total"):
        budget.open("b")
    assert account.force(Purpose.OUTPUT, 0)
    assert not account.overdrawn
    budget.open("b").close()


def test_a_closed_account_holds_nothing() -> None:
    budget = new_budget(BUDGET)
    account = budget.open("a")
    account.close()
    account.close()
    assert account.hold(Purpose.OUTPUT, 4 * BUDGET)
    assert account.force(Purpose.INPUT, 4 * BUDGET)
    assert (budget.used, account.held, budget.left()) == (0, 0, {})


def test_an_account_without_a_budget_has_no_limit() -> None:
    assert unlimited_account().hold(Purpose.INPUT, 1 << 40)


# --- Shares ---------------------------------------------------------------------------------------


def test_one_address_cannot_take_what_others_need() -> None:
    budget = new_budget(BUDGET)
    greedy = [budget.open("attacker") for _ in range(20)]
    taken = sum(account.hold(Purpose.INPUT, 1 * MIB) for account in greedy)
    assert taken == 3  # with blocks and connections, less than a quarter
    honest = budget.open("honest")
    assert honest.hold(Purpose.INPUT, 3 * MIB)


def test_one_principal_cannot_take_what_others_need_from_many_addresses() -> None:
    budget = new_budget(BUDGET)
    taken = 0
    for number in range(20):
        account = budget.open(f"address {number}")
        account.identify("greedy")
        taken += account.hold(Purpose.INPUT, 1 * MIB)
    assert taken == 3
    assert budget.refusals["principal"] == 17
    other = budget.open("address 0")
    other.identify("honest")
    assert other.hold(Purpose.INPUT, 2 * MIB)


def test_anonymous_clients_count_for_their_addresses_only() -> None:
    budget = new_budget(BUDGET)
    for number in range(4):
        account = budget.open(f"address {number}", handshake_bytes_max=64 * KIB)
        account.identify(None)
        assert account.hold(Purpose.INPUT, 2 * MIB)


def fill(budget: MemoryBudget, addresses: int) -> list["Connection"]:
    """Let two connections of each address take what they get."""
    made = [
        Connection(budget.open(f"attacker {number % addresses}")) for number in range(2 * addresses)
    ]
    for each in made:
        while each.account.hold(Purpose.INPUT, each.account.size(Purpose.INPUT) + 100 * KIB):
            pass
    return made


def test_an_address_may_hold_no_more_than_is_free() -> None:
    budget = new_budget(BUDGET)
    fill(budget, 3)
    assert budget.open("honest").hold(Purpose.INPUT, 512 * KIB)


def test_where_many_hold_much_a_client_of_a_small_share_waits_shortly() -> None:
    budget = new_budget(BUDGET)
    attackers = fill(budget, 10)
    served: list[str] = []
    waiter(budget, "honest", 512 * KIB, lambda: served.append("honest"))
    times(budget, seconds=MEMORY_UNFAIR_SECONDS_MAX + 2)
    assert served == ["honest"]
    assert sum(each.evicted for each in attackers) == 1
    assert attackers[0].evicted


def test_a_sweep_with_thousands_that_wait_and_thousands_that_idle_is_short() -> None:
    budget = new_budget(512 * MIB)
    idle = [Connection(budget.open("attacker")) for _ in range(2000)]
    waiting = [Connection(budget.open("attacker")) for _ in range(2000)]
    for each in idle:
        each.account.force(Purpose.INPUT, 2 * MEMORY_BLOCK_BYTES)
    for each in waiting:
        each.account.wait(Purpose.INPUT, 8 * MIB, lambda: None)
    longest = 0.0
    for step in range(1, 40):
        began = time.thread_time()
        budget.tick(100 + MEMORY_STALL_SECONDS_MAX / 20 * step)
        longest = max(longest, time.thread_time() - began)
    assert budget.evictions
    assert longest < 0.1
    for each in (*idle, *waiting):
        each.account.close()
    assert budget.left() == {}
    assert budget.waiting == 0


def test_before_authentication_a_connection_holds_little_and_all_of_them_a_share() -> None:
    budget = new_budget(BUDGET)
    first = budget.open("a", handshake_bytes_max=128 * KIB)
    assert first.hold(Purpose.INPUT, 128 * KIB)
    assert not first.hold(Purpose.INPUT, 140 * KIB)
    assert not first.ever_fits(140 * KIB)
    opened = []
    with contextlib.suppress(MemoryExhausted):
        for number in range(1000):
            account = budget.open(f"address {number}", handshake_bytes_max=128 * KIB)
            opened.append(account.hold(Purpose.INPUT, 128 * KIB))
    assert 20 <= sum(opened) <= 31
    assert budget.refusals["unauthenticated"] == len(opened) + 1 - sum(opened)
    assert budget.used <= SHARE
    first.identify("known")
    assert first.hold(Purpose.INPUT, 2 * MIB)


def test_the_first_block_of_a_connection_is_there_beside_large_ones() -> None:
    budget = new_budget(BUDGET)
    greedy = budget.open("shared")
    assert greedy.hold(Purpose.INPUT, SHARE - 2 * MEMORY_BLOCK_BYTES)
    small = [budget.open("shared") for _ in range(10)]
    assert all(account.hold(Purpose.OUTPUT, 50 * KIB) for account in small)
    assert not small[0].hold(Purpose.OUTPUT, 200 * KIB)
    many = [budget.open("shared") for _ in range(80)]
    assert not all(account.hold(Purpose.OUTPUT, 50 * KIB) for account in many)
    assert budget.used <= 2 * SHARE + 90 * MEMORY_CONNECTION_BYTES


def test_shares_of_addresses_and_principals_are_forgotten() -> None:
    budget = new_budget(BUDGET)
    for number in range(1000):
        account = budget.open(f"address {number}", handshake_bytes_max=1 * KIB)
        account.identify(f"principal {number}")
        account.close()
        budget.draw(Purpose.FLIGHT, 10, principal=f"principal {number}").release()
    assert budget.left() == {}
    assert not budget._shares.named


# --- Reserves and threads -------------------------------------------------------------------------


def test_reserved_memory_is_not_there_for_clients() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    budget.reserve(Purpose.CACHES, BUDGET - 1 * MIB)
    account = budget.open("a")
    assert not account.hold(Purpose.INPUT, 1 * MIB)
    with pytest.raises(MemoryExhausted):
        budget.reserve(Purpose.CACHES, 1 * MIB)
    assert budget.by_purpose()["caches"] == BUDGET - 1 * MIB


def test_threads_draw_and_return() -> None:
    budget = new_budget(BUDGET)
    failed = []

    def work(number: int) -> None:
        for _ in range(500):
            try:
                with budget.draw(Purpose.FLIGHT, 1 * MIB, principal=f"p{number % 3}") as draw:
                    draw.resize(2 * MIB)
            except MemoryExhausted as error:
                failed.append(error.share)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(failed) <= {"principal", "total"}
    assert budget.used == 0
    assert budget.left() == {}


# --- Waiting --------------------------------------------------------------------------------------


def waiter(budget: MemoryBudget, address: str, size: int, then: Callable[[], None]) -> Account:
    account = budget.open(address)
    assert not account.hold(Purpose.INPUT, size)
    account.wait(Purpose.INPUT, size, then, seconds_max=MEMORY_WAIT_SECONDS_MAX)
    return account


def test_waiting_accounts_are_served_in_order_when_memory_is_freed() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    holder = budget.open("")
    holder.hold(Purpose.OUTPUT, BUDGET - 3 * MIB)
    served: list[str] = []
    accounts = {
        name: waiter(budget, name, 2 * MIB, lambda name=name: served.append(name))  # type: ignore[misc]
        for name in "bcd"
    }
    assert budget.waiting == 3
    holder.hold(Purpose.OUTPUT, BUDGET - 7 * MIB)
    assert served == ["b"]
    assert accounts["b"].size(Purpose.INPUT) == 2 * MIB
    holder.close()
    assert served == ["b", "c", "d"]
    for account in accounts.values():
        account.close()
    assert (budget.used, budget.waiting) == (0, 0)


def test_an_account_that_closes_waits_no_longer() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    holder = budget.open("")
    holder.hold(Purpose.OUTPUT, BUDGET - 3 * MIB)
    served: list[str] = []
    account = waiter(budget, "b", 2 * MIB, lambda: served.append("b"))
    account.close()
    holder.close()
    assert served == []
    assert budget.left() == {}


def test_of_those_that_make_no_progress_the_largest_is_cut_when_others_wait() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    large, small, moving = (Connection(budget.open()) for _ in range(3))
    large.account.hold(Purpose.OUTPUT, 6 * MIB)
    small.account.hold(Purpose.OUTPUT, 2 * MIB)
    moving.account.hold(Purpose.OUTPUT, 5 * MIB)
    served: list[str] = []
    waiting = Connection(waiter(budget, "d", 3 * MIB, lambda: served.append("d")))
    for step in range(int(2 * MEMORY_STALL_SECONDS_MAX) - 1):
        moving.moved += 1 * MIB
        budget.tick(100 + step / 2)
    assert not large.evicted
    times(budget, seconds=2, start=100 + MEMORY_STALL_SECONDS_MAX)
    assert large.evicted
    assert served == ["d"]
    assert not small.evicted
    assert not moving.evicted
    assert not waiting.evicted
    assert budget.evictions == 1


def test_without_others_that_wait_no_connection_is_cut() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    idle = Connection(budget.open())
    assert idle.account.hold(Purpose.OUTPUT, 13 * MIB)
    times(budget, seconds=5 * MEMORY_STALL_SECONDS_MAX)
    assert not idle.evicted


def test_only_holders_of_the_share_that_is_used_up_are_cut() -> None:
    budget = new_budget(BUDGET)
    elsewhere, attacker = (Connection(budget.open(name)) for name in ("a", "b"))
    elsewhere.account.hold(Purpose.OUTPUT, 3 * MIB)
    attacker.account.hold(Purpose.INPUT, 2 * MIB)
    served: list[str] = []
    waiter(budget, "b", 2 * MIB, lambda: served.append("b"))
    times(budget, seconds=MEMORY_STALL_SECONDS_MAX + 2)
    assert (attacker.evicted, elsewhere.evicted, served) == (True, False, ["b"])


def test_two_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    served: list[int] = []
    pair = [Connection(budget.open()) for _ in range(2)]
    for each in pair:
        assert each.account.hold(Purpose.INPUT, 6 * MIB)
    for number, each in enumerate(pair):
        assert not each.account.hold(Purpose.INPUT, 12 * MIB)
        each.account.wait(
            Purpose.INPUT, 12 * MIB, lambda number=number: served.append(number), seconds_max=30
        )
    times(budget, seconds=MEMORY_STALL_SECONDS_MAX + 2)
    assert sum(each.evicted for each in pair) == 1
    assert len(served) == 1


def test_a_wait_has_an_end_also_beside_holders_that_progress() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    holder = Connection(budget.open())
    holder.account.hold(Purpose.OUTPUT, 13 * MIB)
    waiting = Connection(waiter(budget, "b", 4 * MIB, lambda: None))
    for step in range(int(2 * MEMORY_WAIT_SECONDS_MAX) + 4):
        holder.moved += 1 * MIB
        budget.tick(100 + step / 2)
    assert waiting.evicted
    assert not holder.evicted


def test_a_nearly_used_budget_is_told_once_and_told_when_it_is_over() -> None:
    budget = new_budget(BUDGET, address_share=1.0)
    told: list[bool] = []
    budget.on_short = told.append
    account = budget.open()
    account.hold(Purpose.OUTPUT, 13 * MIB)
    account.hold(Purpose.OUTPUT, 13 * MIB + 1)
    account.hold(Purpose.OUTPUT, 0)
    assert told == [True, False]
