"""Errors of the HTTP API: a status, and a JSON body with a code and a message."""

from typing import Final

from penstock.errors import (
    AuthenticationFailed,
    GroupDamaged,
    GroupDiffers,
    GroupElsewhere,
    HookRefused,
    HookTimeout,
    InvalidMessageKey,
    InvalidPattern,
    InvalidTopicName,
    LogUnavailable,
    MemoryExhausted,
    MiddlewareMissing,
    NoHistory,
    NoLastValues,
    NoSuchGroup,
    NoSuchTopic,
    NotAllowed,
    PenstockError,
    ReservedHeader,
    TierUnavailable,
    TooManyMessages,
    TooManyStoredBytes,
    TopicHasChannel,
    TopicTableFull,
)

__all__ = ["ApiError", "api_error"]


class ApiError(Exception):
    """A request that is answered with a status other than 200; `code` is stable, for programs."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_seconds: int | None = None
    ) -> None:
        """`retry_seconds` is for the header Retry-After."""
        super().__init__(status, code, message)
        self.status = status
        self.retry_seconds = retry_seconds
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


_STATUS: Final[dict[type[PenstockError], int]] = {
    AuthenticationFailed: 401,
    NotAllowed: 403,
    HookRefused: 403,
    InvalidTopicName: 400,
    InvalidPattern: 400,
    NoSuchTopic: 404,
    NoSuchGroup: 404,
    GroupDamaged: 500,
    GroupDiffers: 409,
    GroupElsewhere: 409,
    NoHistory: 409,
    NoLastValues: 409,
    TopicHasChannel: 409,
    TooManyMessages: 429,
    TooManyStoredBytes: 429,
    TopicTableFull: 503,
    LogUnavailable: 503,
    TierUnavailable: 503,
    MemoryExhausted: 503,
    HookTimeout: 503,
    MiddlewareMissing: 503,
    ReservedHeader: 400,
    InvalidMessageKey: 400,
}


def api_error(error: PenstockError) -> ApiError:
    """Return the API error for an error of the broker."""
    if isinstance(error, AuthenticationFailed):  # details go to the log, not to the client
        message = (
            "credentials needed: send Authorization: Bearer with a token or an API key, "
            "or Basic with a user name and password"
        )
        return ApiError(401, error.code, message)
    return ApiError(_STATUS.get(type(error), 500), error.code, " ".join(str(error).split()))
