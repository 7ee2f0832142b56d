"""The limits of LamaMQ as one value, for both decoders and the encoder."""

import dataclasses
from typing import Final

from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.protocols.lamamq import (
    LAMAMQ_ERROR_MESSAGE_BYTES_MAX,
    LAMAMQ_HEADERS_BYTES_MAX,
    LAMAMQ_HEADERS_MAX,
    LAMAMQ_HOOK_CONDITION_BYTES_MAX,
    LAMAMQ_HOOK_CONDITIONS_MAX,
    LAMAMQ_HOOK_NAME_BYTES_MAX,
    LAMAMQ_IDENTITY_KEY_BYTES_MAX,
    LAMAMQ_IDENTITY_NAME_BYTES_MAX,
    LAMAMQ_PAYLOAD_BYTES_MAX,
)

__all__ = ["DEFAULT_LIMITS", "Limits"]


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """One limit for each length and count on the wire.

    `headers_bytes_max` limits all headers of one message together: their keys, their values and
    the lengths of both, but not the count before them. In a hook's conditions each header and each
    value has `hook_condition_bytes_max`, each topic `routing_key_bytes_max`.
    """

    identity_name_bytes_max: int = LAMAMQ_IDENTITY_NAME_BYTES_MAX
    identity_key_bytes_max: int = LAMAMQ_IDENTITY_KEY_BYTES_MAX
    routing_key_bytes_max: int = TOPIC_NAME_BYTES_MAX
    headers_max: int = LAMAMQ_HEADERS_MAX
    headers_bytes_max: int = LAMAMQ_HEADERS_BYTES_MAX
    payload_bytes_max: int = LAMAMQ_PAYLOAD_BYTES_MAX
    hook_name_bytes_max: int = LAMAMQ_HOOK_NAME_BYTES_MAX
    hook_conditions_max: int = LAMAMQ_HOOK_CONDITIONS_MAX
    hook_condition_bytes_max: int = LAMAMQ_HOOK_CONDITION_BYTES_MAX
    error_message_bytes_max: int = LAMAMQ_ERROR_MESSAGE_BYTES_MAX


DEFAULT_LIMITS: Final = Limits()
