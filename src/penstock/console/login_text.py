"""Failed log-ins in words: the likely cause and the remedy, by the reason of the broker."""

from typing import Final

from penstock.protocols import PROTOCOLS

__all__ = ["login_remedy"]

_RELOAD: Final = "then let the broker read its configuration again (SIGHUP)"
_NEW_TOKEN: Final = f"`penstock user token NAME` makes a new one; {_RELOAD}"
_JWT: Final = "Compare the token with the [[jwt]] tables of the broker"

_REMEDIES: Final = {
    "unknown token": (
        "No principal has this token: it was replaced by a newer one, its principal was removed, "
        f"or it was mistyped or cut off. {_NEW_TOKEN}."
    ),
    "unknown API key": (
        "No principal has this API key: it was replaced, its principal was removed, or it was "
        f"mistyped. `penstock user key NAME` makes a new one; {_RELOAD}."
    ),
    "unknown identity name": (
        "No principal has an identity of this name. Correct the name that the client sends, or add "
        f"the identity with `penstock user key NAME --identity`; {_RELOAD}."
    ),
    "wrong key": (
        "The identity is known, but its key is another one: it was replaced or mistyped. "
        f"`penstock user key NAME --identity` makes a new one; {_RELOAD}."
    ),
    "unknown user name": (
        "No principal has this user name. Correct it in the client, or add it with "
        f"`penstock user add NAME`; {_RELOAD}."
    ),
    "wrong password": (
        "The user name is known, but the password is another one. Correct it in the client, or set "
        f"a new one with `penstock user passwd NAME`; {_RELOAD}."
    ),
    "no principal has credentials": (
        "The client sent credentials, but the broker has no principals. Add one with "
        f"`penstock user add NAME`, {_RELOAD}; or let the client send none."
    ),
    "no principal has a password": (
        "The client sent a user name and password, but all principals have other credentials. Add "
        f"a password with `penstock user add NAME`, {_RELOAD}; or use a token."
    ),
    "cleartext credentials": (
        "The client sent credentials over a connection that others can read. Connect with TLS "
        "(tls:// or https://), or by a listener that only this machine can reach."
    ),
    "changed meanwhile": (
        "The credentials were changed while the client used them. It must log in with the new ones."
    ),
    "its subject is no principal": (
        "The JSON Web Token is valid, but no principal has its subject. Add jwt = { issuer, "
        "subject } to a [[principal]], or let the issuer set another subject."
    ),
    "unknown issuer": (
        "The JSON Web Token is of an issuer that the broker does not know. Add it as [[jwt]], or "
        "let the client get its token elsewhere."
    ),
    "wrong signature": (
        "The JSON Web Token was not signed with a key of its issuer: the issuer has changed its "
        "keys, or the token was forged. Give the broker the current keys of the issuer."
    ),
    "no key of the issuer fits its algorithm": (
        "The JSON Web Token is signed with an algorithm that no key of its issuer has. "
        f"{_JWT}, and their keys."
    ),
    "neither Bearer nor Basic": (
        "The header Authorization has another scheme. The client must send a token or an API key "
        "as Bearer, or a user name and password as Basic."
    ),
    "not Base64 of UTF-8": (
        "The header Authorization: Basic is damaged. The client must send user name, colon and "
        "password in Base64."
    ),
    "not a bearer token": "A Flight client must send its token as Authorization: Bearer.",
    "token: malformed": f"The JSON Web Token is damaged or cut off. {_JWT}.",
}
"""Remedies by reason."""
_BEGINNINGS: Final = {
    "too many wrong ones": (
        "This address sent many different wrong tokens or keys, and is refused for five minutes. "
        "Find the client that guesses, or that has an old token, before you let it try again."
    ),
    "too many wrong passwords": (
        "This address sent wrong passwords for this user name. After the time that the reason "
        "says, the right one is accepted."
    ),
    "too many": (
        "More passwords wait than the broker verifies. The client must try again; if that goes on, "
        "let clients use tokens or keys, which cost less."
    ),
    "it could not be verified": "The password could not be verified in time: try again.",
    "it cannot be verified": (
        "The broker could not start the process that verifies passwords: look at its log."
    ),
    "the client has left": "The client did not wait for the answer. Nothing needs to be done.",
    "longer than": "The password or token is longer than the broker accepts: shorten it.",
    "of several": (
        "The certificate has the names of several principals. Let only one of them have a name of "
        "this certificate."
    ),
    "token: ": f"The JSON Web Token is not valid for this broker. {_JWT}: audience, times, claims.",
}
"""Remedies by the beginning of a reason, the first that fits."""
_EXPIRED: Final = (
    "The JSON Web Token has expired. The client must get a new one from its issuer before the old "
    "one ends; if it just did, compare the clocks of issuer and broker (leeway_seconds of [[jwt]])."
)
_NO_CREDENTIALS: Final = (
    "The client sent no credentials, and the listener does not accept anonymous clients. Make some "
    "with `penstock user token NAME` and give them to the client, or set anonymous = true for the "
    "listener."
)
_NONE_POSSIBLE: Final = (
    "The listener does not accept anonymous clients, and {protocol} has no credentials. Let a "
    "[[principal]] have the client's certificate or its network, or set anonymous = true for a "
    "listener of its own."
)
_NOT_FROM: Final = (
    "The credentials are right, but the principal may use them from some addresses only. Add the "
    "address to its `only_from`, or find out why the client is elsewhere."
)
_OTHER: Final = "Check the credentials that the client sends."


def login_remedy(reason: str, protocol: str) -> str:
    """Return what an operator can do about a failed log-in."""
    if reason in ("no credentials", "no token"):
        declared = next((each for each in PROTOCOLS if each.label == protocol), None)
        if declared is not None and not declared.credentials:
            return _NONE_POSSIBLE.format(protocol=protocol)
        return _NO_CREDENTIALS
    if "expired" in reason:
        return _EXPIRED
    if " is not accepted from " in reason:
        return _NOT_FROM
    if reason in _REMEDIES:
        return _REMEDIES[reason]
    return next((text for start, text in _BEGINNINGS.items() if reason.startswith(start)), _OTHER)
