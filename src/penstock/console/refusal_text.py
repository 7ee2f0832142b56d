"""A refusal in words: why, and what to do about it."""

from collections.abc import Mapping
from typing import Any, Final

from penstock.console.login_text import login_remedy

__all__ = ["limit_note", "remedy_text", "subject_text", "why_text"]

_LOG_IN: Final = "log-in"
_ACTS: Final = {
    "publish": "publish to",
    "subscribe": "subscribe to",
    "request": "send requests to",
    "serve": "serve",
    "hook": "register hooks for",
    "group": "use the group",
    "administer": "administer",
}


def subject_text(refusal: Mapping[str, Any]) -> str:
    """Return what to call the client: its name, else its principal, else its address."""
    return str(refusal.get("client") or refusal["principal"] or refusal["address"] or "a client")


def limit_note(limit: Mapping[str, Any]) -> str:
    """Return why a limit is lower than its setting, nothing if it is not."""
    if limit.get("lowered_by") != "open files":
        return ""
    return (
        "The setting is higher: the broker's process may not open more files. Raise that limit "
        "(LimitNOFILE of systemd, or ulimit -n), and restart the broker."
    )


def why_text(refusal: Mapping[str, Any]) -> str:
    """Return the reason as a sentence."""
    if refusal["action"] == _LOG_IN:
        return f"The log-in failed: {refusal['name']}."
    principal, name = refusal["principal"], refusal["name"]
    act = _ACTS.get(refusal["action"], refusal["action"])
    if refusal.get("rule"):
        return f"A rule denies {principal} to {act} {name}: {refusal['rule']}."
    return f"The rules of {principal} do not allow it to {act} {name}."


def remedy_text(refusal: Mapping[str, Any]) -> str:
    """Return what an operator can do."""
    if refusal["action"] == _LOG_IN:
        return login_remedy(refusal["name"], refusal["protocol"])
    allowing = f'a rule with allow = ["{refusal["action"]}"] and topics = ["{refusal["name"]}"]'
    if refusal.get("rule"):
        return (
            f"The first rule that matches decides: put {allowing} before the denying rule, or "
            f"change that. The rules of {refusal['principal']} itself come before those of its "
            "roles."
        )
    return f"Add {allowing} to {refusal['principal']}, or correct the client."
