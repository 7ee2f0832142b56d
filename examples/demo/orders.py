"""Chapter 4: orders over LamaMQ, and a middleware that refuses those which cannot be met."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from examples.demo.screen import chapter, seen
from examples.demo.service import LITRES
from examples.demo.topics import ORDERS

import penstock
from penstock.client import HookCall, Refused, TopicIs

__all__ = ["TAKEN", "WANTED", "Order", "guarded", "push", "tell"]

WANTED = (
    {"beer": "pils", "litres": 50},
    {"beer": "stout", "litres": 20},
    {"beer": "stout", "litres": 900},
    {"beer": "weizen", "litres": 100},
    {"beer": "cider", "litres": 5},
    {"beer": "pils"},  # the guard lets it pass; the pipeline will miss the litres
    {"beer": "pils", "litres": 200},
)
TAKEN = 5


class Order(NamedTuple):
    """An order as it was pushed; `refusal` is the guard's reason, empty if it was taken."""

    text: str
    refusal: str


async def possible(call: HookCall) -> str | None:
    """Let an order pass with None, refuse it with a text."""
    order = json.loads(call.value)
    beer, litres = order["beer"], order.get("litres", 0)
    there = LITRES.get(beer, 0)
    return f"there are {there} litres of {beer}, not {litres}" if litres > there else None


@asynccontextmanager
async def guarded(url: str) -> AsyncIterator[None]:
    """Have every order looked at while the context lasts, whatever protocol it comes in."""
    async with (
        penstock.connect(url, protocol="lamamq", name="guard") as guard,
        await guard.middleware("possible", possible, conditions=[TopicIs(ORDERS)]),
    ):
        yield


async def push(url: str) -> list[Order]:
    """Push all orders; return what became of them."""
    pushed = []
    async with penstock.connect(url, protocol="lamamq", name="shop") as shop:
        for wanted in WANTED:
            text = json.dumps(wanted)
            try:
                await shop.publish(ORDERS, text.encode(), headers={"source": "web"})
                pushed.append(Order(text, ""))
            except Refused as refused:
                pushed.append(Order(text, refused.text))
    return pushed


def tell(pushed: list[Order]) -> None:
    """Show what the shop was told."""
    chapter("4 Orders", "Over LamaMQ a shop pushes orders, and a middleware looks at each first.")
    refused = [order for order in pushed if order.refusal]
    seen(f"{len(pushed)} orders, {len(pushed) - len(refused)} taken and on disk.")
    for order in refused:
        seen(f"{order.text} refused: {order.refusal}")
