"""Which topics a visitor may read, as far as a page needs one to start with."""

from typing import Final

from penstock.console.api import BrokerApi

__all__ = ["first_pattern"]

_EVERYTHING: Final = "#"
_LEVELS_MAX: Final = 8


async def first_pattern(api: BrokerApi) -> str:
    """Return a pattern that the caller may subscribe to: `#`, else the first one by name.

    Return nothing if there is no topic that it may read; raise ApiRefused or BrokerAway.
    """
    if await _may_read(api, _EVERYTHING):
        return _EVERYTHING
    above = ""
    for _ in range(_LEVELS_MAX):
        query = {"prefix": above, "limit": 1}
        levels = (await api.get("/api/topic-levels", query))["levels"]
        if not levels:
            return ""
        name = f"{above}{levels[0]['name']}"
        if levels[0]["topics"] > 1 or not levels[0]["is_topic"]:
            below = f"{name}/{_EVERYTHING}"
            if await _may_read(api, below):
                return below
        if levels[0]["is_topic"]:
            return name
        above = f"{name}/"
    return ""


async def _may_read(api: BrokerApi, pattern: str) -> bool:
    me = await api.get("/api/me", {"topic": pattern})
    return bool(me["subscribe"])
