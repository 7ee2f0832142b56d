"""Chapter 3: a service that answers requests by fleximq, and publishes MessagePack."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from examples.demo.screen import chapter, seen
from examples.demo.topics import STOCK

import penstock
from penstock.client import Client, Refused, Request, RequestFailed

__all__ = ["LITRES", "Exchange", "ask", "pricing", "publish_stock", "tell"]

LITRES = {"pils": 1200, "stout": 300, "weizen": 800}
EURO = {"pils": 3.2, "stout": 4.5, "weizen": 3.6}
ASKED = 12


class Exchange(NamedTuple):
    """What was asked, and the answer; `answered` is false if it was a refusal."""

    question: str
    answer: str
    answered: bool


async def price(request: Request) -> object:
    """Answer with a price, or with a status of our own."""
    beer, litres = request.payload["beer"], request.payload["litres"]
    if beer not in EURO:
        raise RequestFailed(404, f"nobody brews {beer} here")
    return {"euro": round(EURO[beer] * litres, 2)}


@asynccontextmanager
async def pricing(url: str) -> AsyncIterator[Client]:
    """Serve `/price` while the context lasts; others ask it by the client's id."""
    async with penstock.connect(url, protocol="fleximq") as client:
        with client.serve("/price", price):
            yield client


async def publish_stock(url: str) -> None:
    """Tell how much there is; fleximq carries MessagePack."""
    async with penstock.connect(url, protocol="fleximq") as client:
        for beer, litres in LITRES.items():
            await client.publish(STOCK, payload={"beer": beer, "litres": litres})
        await client.ping()


async def ask(url: str, service: int) -> list[Exchange]:
    """Ask for prices; return what was said."""
    said = []
    async with penstock.connect(url, protocol="fleximq") as till:
        for number in range(ASKED):
            beer = ("pils", "stout", "weizen", "cider")[number % 4]
            question = {"beer": beer, "litres": 5 + number}
            try:
                reply = await till.request(service, "/price", question)
                said.append(
                    Exchange(json.dumps(question), json.dumps(reply.payload), answered=True)
                )
            except Refused as refused:
                said.append(Exchange(json.dumps(question), refused.text, answered=False))
    return said


def tell(said: list[Exchange]) -> None:
    """Show an answer and a refusal."""
    chapter("3 A service", "Over fleximq a till asks for prices, and a service answers.")
    answers = [each for each in said if each.answered]
    refusals = [each for each in said if not each.answered]
    seen(f"{len(said)} questions, {len(answers)} prices.")
    seen(f"{answers[0].question} answered: {answers[0].answer}")
    seen(f"{refusals[0].question} refused: {refusals[0].answer}")
