class TopicTable:
    """Topic names interned by number; names that are empty or have a wildcard level are refused.

    Any thread may look names up, also while another adds one, but not while one is removed. `count`
    and `len()` are the numbers given so far, those of removed topics included: the size of tables
    by number. A number is not given again.

    A name that ends in a start position (`a@earliest`) can only come from the log of an earlier
    version. Lookups find it, scans do not: messages cannot be published to it.

    Each name has an owner: the principal or address that created it, or "" for the broker itself,
    which has no share. TopicTableFull names the limit that is reached.
    """

    def __init__(
        self,
        *,
        capacity: int = ...,
        name_bytes_max: int = ...,
        owner_topics_max: int = ...,
        owner_name_bytes_max: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def live(self) -> int:
        """Topics that exist."""

    @property
    def removals(self) -> int:
        """Topics removed so far."""

    @property
    def capacity(self) -> int: ...
    @property
    def name_bytes(self) -> int:
        """Bytes of the names of all topics, in UTF-8."""

    @property
    def name_bytes_max(self) -> int: ...
    @property
    def owner_topics_max(self) -> int: ...
    @property
    def owner_name_bytes_max(self) -> int: ...
    @property
    def owner(self) -> str:
        """The owner of names that are added next, see `charge_to`."""

    def charge_to(self, owner: str, *, topics_max: int = 0) -> None:
        """Set the owner of the names that are added next.

        It may have `topics_max` topics in place of `owner_topics_max`, unless that is 0.
        """

    def intern(self, name: str) -> int:
        """Return the id of a canonical name, adding it if it is new.

        Raise InvalidTopicName if it is not publishable, TopicTableFull at a limit.
        """

    def intern_for(self, name: str, owner: str, *, topics_max: int = 0) -> int:
        """Intern a name, which belongs to `owner` if it is new; raise as `intern` does.

        `topics_max` is that of `charge_to`.
        """

    def intern_binary(self, name: bytes) -> int:
        """Return the id of a Rheos name, adding it if it is new; raise as `intern` does."""

    def intern_stored(self, name: str) -> int | None:
        """Return the id of a name read from the log, adding it unless it was removed.

        Raise as `intern` does. A new name belongs to the broker.
        """

    def restore(self, name: str, owner: str) -> int:
        """Intern a name of an earlier run; the owner's share may be exceeded."""

    def find(self, name: str) -> int | None:
        """Return the id of a canonical name, or None."""

    def find_binary(self, name: bytes) -> int | None:
        """Return the id of a Rheos name, or None."""

    def name(self, identifier: int) -> str:
        """Return the canonical name of an id; raise IndexError if it is unknown or removed."""

    def is_live(self, identifier: int) -> bool:
        """Return whether an id is of a topic that exists."""

    def has_channel(self, identifier: int) -> bool:
        """Return whether a topic is bound to a herald channel."""

    def owner_of(self, name: str) -> str:
        """Return the owner of a topic; empty if it is the broker, or there is no such topic."""

    def set_parent(self, identifier: int, parent: bytes) -> None:
        """Set the 16 bytes of the Rheos client id that created a topic; none if it is empty.

        Raise IndexError if the id is unknown or removed.
        """

    def parent(self, identifier: int) -> bytes:
        """Return the Rheos client id that created a topic, empty if it is unknown.

        Raise IndexError if the id is unknown or removed.
        """

    def share_of(self, owner: str) -> tuple[int, int]:
        """Return how many topics an owner has, and the bytes of their names."""

    def remove(self, identifier: int) -> None:
        """Remove a topic and free its name; raise IndexError, or ValueError if a channel has it."""

    def mark_removed(self, name: str) -> None:
        """Note a name that was removed in an earlier run, for `intern_stored`."""

    def bind_channel(self, channel: int, name: str) -> int:
        """Bind a herald channel (0 to 255) to a topic; return the topic's id.

        Raise ValueError if either is bound already, else as `intern` does.
        """

    def channel_topic(self, channel: int) -> int | None:
        """Return the topic id of a herald channel, or None for an unbound channel."""
