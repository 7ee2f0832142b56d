"""Describes a changed configuration for the audit log: names and rules, never secrets."""

from collections.abc import Iterable, Sequence

from penstock.ports import Audit, AuditEvent
from penstock.server.config import (
    AnonymousConfig,
    Config,
    PrincipalConfig,
    RoleConfig,
    RuleConfig,
)

__all__ = ["record_changes"]


def record_changes(
    audit: Audit, old: Config, new: Config, *, changed: Sequence[str], needs_restart: Sequence[str]
) -> None:
    """Record which settings, principals and rules a reload has changed."""
    audit.record(
        AuditEvent.CONFIGURATION_CHANGED, changed=list(changed), needs_restart=list(needs_restart)
    )
    before = {each.name: each for each in old.principal}
    after = {each.name: each for each in new.principal}
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    credentials = [
        name
        for name in before.keys() & after.keys()
        if _credentials(before[name]) != _credentials(after[name])
    ]
    if added or removed or credentials:
        audit.record(
            AuditEvent.PRINCIPALS_CHANGED,
            added=sorted(added),
            removed=sorted(removed),
            credentials_changed=sorted(credentials),
        )
    owners_before, owners_after = _owners(old), _owners(new)
    for owner in sorted(owners_before.keys() | owners_after.keys()):
        lines_before, lines_after = owners_before.get(owner, []), owners_after.get(owner, [])
        if lines_before != lines_after:
            audit.record(
                AuditEvent.RULES_CHANGED,
                owner=owner,
                added=[line for line in lines_after if line not in lines_before],
                removed=[line for line in lines_before if line not in lines_after],
            )


def _credentials(principal: PrincipalConfig) -> tuple[object, ...]:
    return tuple(
        getattr(principal, name)
        for name in principal.__struct_fields__
        if name not in {"name", "default", "roles", "rule"}
    )


def _owners(config: Config) -> dict[str, list[str]]:
    """Return the rules, roles and default of each principal and role, a line each."""
    owners: dict[str, list[str]] = {"anonymous": _lines(config.anonymous)}
    for principal in config.principal:
        owners[f"principal {principal.name}"] = _lines(principal)
    for role in config.role:
        owners[f"role {role.name}"] = _lines(role)
    return owners


def _lines(owner: PrincipalConfig | AnonymousConfig | RoleConfig) -> list[str]:
    lines = list(_rule_lines(owner.rule))
    if not isinstance(owner, RoleConfig):
        lines += [f"role {name}" for name in owner.roles]
        if owner.default is not None:
            lines.append(f"default {owner.default}")
    return lines


def _rule_lines(rules: Iterable[RuleConfig]) -> Iterable[str]:
    for rule in rules:
        verdict = "allow" if rule.allow is not None else "deny"
        actions = " ".join(rule.allow or rule.deny or ())
        yield f"{verdict} {actions} on {' '.join(rule.topics)}"
