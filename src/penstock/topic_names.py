"""Names of topics that messages can be published to."""

from penstock.errors import InvalidTopicName
from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import is_publishable
from penstock.replay import ends_in_replay

__all__ = ["check_topic_name"]

_SHOWN_CHARACTERS_MAX = 200
"""Characters of a name in an error."""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName, with the reason, unless a client may create or publish to `name`."""
    if not name:
        reason = "it is empty"
    elif not is_publishable(name):
        reason = "a level is a wildcard"
    elif len(name) > TOPIC_NAME_BYTES_MAX or len(name.encode()) > TOPIC_NAME_BYTES_MAX:
        reason = f"a name has at most {TOPIC_NAME_BYTES_MAX} bytes"
    elif ends_in_replay(name):
        suffix = name[name.rindex("@") :]
        reason = f"subscriptions would take {suffix} for a start position"
    else:
        return
    raise InvalidTopicName(name[:_SHOWN_CHARACTERS_MAX], reason)
