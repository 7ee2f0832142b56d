"""The topic table: interns topic names as numeric ids.

Lookups run without the GIL beside an insertion in another thread (see names.h); insertions hold it.
A removal must not run beside a lookup. A removed topic's number is not given again, so tables by
number, such as permits and routes, need no cleaning.
"""

import os
from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from penstock._kernels.frame cimport LOOSE
from penstock._kernels.names cimport names_add, names_close, names_find, names_open, names_remove

from penstock.errors import InvalidTopicName, TopicTableFull
from penstock.limits import (
    TOPICS_MAX,
    TOPICS_PER_PRINCIPAL_MAX,
    TOPICS_REMOVED_MAX,
    TOPIC_NAMES_BYTES_MAX,
    TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX,
    TOPIC_NAME_BYTES_MAX,
)
from penstock.model import binary_topic_name, is_publishable, topic_name_from_binary
from penstock.protocols.fleximq import FLEXIMQ_HEADER_BYTES_MAX
from penstock.replay import ends_in_replay


cdef class TopicTable:
    def __cinit__(
        self,
        *,
        uint32_t capacity=TOPICS_MAX,
        uint64_t name_bytes_max=TOPIC_NAMES_BYTES_MAX,
        uint32_t owner_topics_max=TOPICS_PER_PRINCIPAL_MAX,
        uint64_t owner_name_bytes_max=TOPIC_NAMES_BYTES_PER_PRINCIPAL_MAX,
    ):
        cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")
        if not 0 < capacity <= TOPICS_MAX:
            raise ValueError(f"capacity is {capacity}, allowed are 1 to {TOPICS_MAX}")
        self.capacity = capacity
        self.name_bytes_max = name_bytes_max
        self.owner_topics_max = owner_topics_max
        self.owner_name_bytes_max = owner_name_bytes_max
        self.owner = ""
        self.owner_quota = 0
        self.names = []
        self.owners = []
        self.shares = {}
        self.removed_names = OrderedDict()
        self.unlisted = {}
        if not names_open(&self.by_name, seed) or not names_open(&self.by_binary_name, seed):
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t identifier
        names_close(&self.by_name)
        names_close(&self.by_binary_name)
        for identifier in range(self.count):
            free(topic_at(self.chunks, identifier).name)       # NULL where it was removed
        for chunk in range(CHUNKS):
            free(self.chunks[chunk])

    def __len__(self):
        return self.count

    def intern(self, str name not None):
        identifier = self.find(name)
        return self.add(name) if identifier is None else identifier

    def intern_for(self, str name not None, str owner not None, *, uint32_t topics_max=0):
        cdef str before = self.owner
        cdef uint32_t quota_before = self.owner_quota
        self.charge_to(owner, topics_max=topics_max)
        try:
            return self.intern(name)
        finally:
            self.owner, self.owner_quota = before, quota_before

    def restore(self, str name not None, str owner not None):
        cdef uint32_t identifier = self.intern_for(name, "")
        if owner and not self.owners[identifier]:
            self.owners[identifier] = owner
            self.charge(owner, 1, len(name.encode()))
        return identifier

    def intern_stored(self, str name not None):
        identifier = self.find(name)
        if identifier is None and hash(name) not in self.removed_names:
            identifier = self.intern_for(name, "")
        return identifier

    def charge_to(self, str owner not None, *, uint32_t topics_max=0):
        self.owner, self.owner_quota = owner, topics_max

    def intern_binary(self, bytes name not None):
        identifier = self.find_binary(name)
        return self.intern(topic_name_from_binary(name)) if identifier is None else identifier

    def find(self, str name not None):
        cdef bytes encoded = name.encode()
        cdef uint32_t number = names_find(&self.by_name, start_of(encoded), PyBytes_GET_SIZE(encoded))
        return number - 1 if number else self.unlisted.get(name)

    def find_binary(self, bytes name not None):
        cdef uint32_t number = names_find(&self.by_binary_name, start_of(name), PyBytes_GET_SIZE(name))
        if number:
            return number - 1
        return self.unlisted.get(topic_name_from_binary(name)) if self.unlisted else None

    def name(self, uint32_t identifier):
        name = self.names[identifier]
        if name is None:
            raise IndexError(f"topic {identifier} was removed")
        return name

    def is_live(self, uint32_t identifier):
        return identifier < self.count and self.names[identifier] is not None

    def has_channel(self, uint32_t identifier):
        return self.is_live(identifier) and topic_at(self.chunks, identifier).channel != NO_CHANNEL

    def owner_of(self, str name not None):
        identifier = self.find(name)
        return "" if identifier is None else self.owners[identifier]

    def set_parent(self, uint32_t identifier, bytes parent not None):
        self.name(identifier)                                  # raises IndexError
        if len(parent) not in (0, 16):
            raise ValueError(f"a parent of {len(parent)} bytes")
        cdef Topic *topic = topic_at(self.chunks, identifier)
        topic.has_parent = len(parent) > 0
        memcpy(topic.parent, start_of(parent), len(parent))

    def parent(self, uint32_t identifier):
        self.name(identifier)                                  # raises IndexError
        cdef Topic *topic = topic_at(self.chunks, identifier)
        return topic.parent[:16] if topic.has_parent else b""

    def share_of(self, str owner not None):
        return self.shares.get(owner, (0, 0))

    def remove(self, uint32_t identifier):
        cdef str name = self.name(identifier)
        cdef str owner = self.owners[identifier]
        cdef Topic *topic = topic_at(self.chunks, identifier)
        cdef size_t size = topic.name_length
        if topic.channel != NO_CHANNEL:
            raise ValueError(f"topic {name!r} is bound to a channel")
        if self.unlisted.pop(name, None) is None:
            names_remove(&self.by_name, topic.name, topic.name_length, identifier + 1)
            names_remove(
                &self.by_binary_name, topic.binary_name, topic.binary_name_length, identifier + 1
            )
        free(topic.name)
        topic.has_parent = False
        topic.name = topic.binary_name = topic.fleximq_header = topic.block_end = NULL
        topic.name_length = topic.binary_name_length = topic.fleximq_header_length = 0
        self.names[identifier] = None
        self.owners[identifier] = ""
        self.live -= 1
        self.removals += 1
        self.name_bytes -= size
        if owner:
            self.charge(owner, -1, -<Py_ssize_t>size)
        self.mark_removed(name)

    def mark_removed(self, str name not None):
        self.removed_names[hash(name)] = None
        if len(self.removed_names) > TOPICS_REMOVED_MAX:
            self.removed_names.popitem(last=False)

    cdef int charge(self, str owner, Py_ssize_t topics, Py_ssize_t size) except -1:
        number, total = self.shares.get(owner, (0, 0))
        if number + topics:
            self.shares[owner] = (number + topics, total + size)
        else:
            del self.shares[owner]
        return 0

    def bind_channel(self, uint8_t channel, str name not None):
        cdef uint32_t identifier = self.intern_for(name, "")
        if self.channel_topics[channel] or topic_at(self.chunks, identifier).channel != NO_CHANNEL:
            raise ValueError(f"channel {channel} or topic {name!r} is bound already")
        topic_at(self.chunks, identifier).channel = channel
        self.channel_topics[channel] = identifier + 1
        return identifier

    def channel_topic(self, uint8_t channel):
        return self.channel_topics[channel] - 1 if self.channel_topics[channel] else None

    cdef bint learn(self, bytes name, bint binary) except -1:
        """Intern a name from the wire; return whether it succeeded."""
        try:
            text = topic_name_from_binary(name) if binary else name.decode()
            if ends_in_replay(text):
                return False
            self.intern(text)
        except (InvalidTopicName, TopicTableFull, UnicodeDecodeError):
            return False
        return True

    cdef uint32_t add(self, str name) except? 0xFFFFFFFF:
        cdef bytes encoded = name.encode()
        cdef bytes binary = binary_topic_name(name)
        cdef uint32_t identifier = self.count
        cdef Topic *topic
        if not is_publishable(name) or len(encoded) > TOPIC_NAME_BYTES_MAX:
            raise InvalidTopicName(name[:200])
        self.check_room(len(encoded))
        if not self.chunks[identifier // TOPICS_PER_CHUNK]:
            self.chunks[identifier // TOPICS_PER_CHUNK] = <Topic *>calloc(
                TOPICS_PER_CHUNK, sizeof(Topic)
            )
            if not self.chunks[identifier // TOPICS_PER_CHUNK]:
                raise MemoryError
        topic = topic_at(self.chunks, identifier)
        write_topic(topic, encoded, binary, fleximq_publication_header(encoded))
        self.names.append(name)
        self.owners.append(self.owner)
        self.count += 1
        self.live += 1
        self.name_bytes += topic.name_length
        if self.owner:
            self.charge(self.owner, 1, topic.name_length)
        self.removed_names.pop(hash(name), None)
        if ends_in_replay(name):
            self.unlisted[name] = identifier
            return identifier
        # A name that Rheos cannot address is not added: its bytes may be those of another name.
        if topic_name_from_binary(binary) == name and not names_add(
            &self.by_binary_name, topic.binary_name, topic.binary_name_length, identifier + 1
        ):
            raise MemoryError
        if not names_add(&self.by_name, topic.name, topic.name_length, identifier + 1):
            raise MemoryError
        return identifier

    cdef int check_room(self, size_t size) except -1:
        """Raise TopicTableFull if a new name of `size` bytes would exceed a limit."""
        if self.live >= self.capacity:
            raise TopicTableFull("broker.topics_max", self.capacity)
        if self.count >= TOPICS_PER_CHUNK * CHUNKS:
            raise TopicTableFull("topic numbers until a restart", TOPICS_PER_CHUNK * CHUNKS)
        if self.name_bytes + size > self.name_bytes_max:
            raise TopicTableFull("broker.topic_names_bytes_max", self.name_bytes_max)
        if self.owner:
            number, total = self.shares.get(self.owner, (0, 0))
            if self.owner_quota and number >= self.owner_quota:
                raise TopicTableFull("quota.topics_max", self.owner_quota)
            if number >= self.owner_topics_max and not self.owner_quota:
                raise TopicTableFull("broker.topics_per_principal_max", self.owner_topics_max)
            if total + size > self.owner_name_bytes_max:
                raise TopicTableFull(
                    "broker.topic_names_bytes_per_principal_max", self.owner_name_bytes_max
                )
        return 0


cdef inline const uint8_t *start_of(bytes data) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(data)


cdef int write_topic(Topic *topic, bytes name, bytes binary_name, bytes header) except -1:
    cdef size_t name_length = len(name)
    cdef size_t binary_name_length = len(binary_name)
    cdef size_t header_length = len(header)
    cdef size_t size = name_length + binary_name_length + header_length
    cdef uint8_t *block = <uint8_t *>malloc(size + LOOSE)
    if not block:
        raise MemoryError
    topic.name = block
    topic.binary_name = topic.name + name_length
    topic.fleximq_header = topic.binary_name + binary_name_length
    topic.block_end = block + size + LOOSE
    memcpy(topic.name, start_of(name), name_length)
    memcpy(topic.binary_name, start_of(binary_name), binary_name_length)
    memcpy(topic.fleximq_header, start_of(header), header_length)
    topic.name_length = <uint32_t>name_length
    topic.binary_name_length = <uint32_t>binary_name_length
    topic.fleximq_header_length = <uint32_t>header_length
    topic.channel = NO_CHANNEL
    return 0


cdef bytes fleximq_publication_header(bytes name):
    """Return the header section of a PUB: u32 length and the MessagePack map {"topic": name}.

    It is empty for a name that does not fit into a header.
    """
    cdef size_t length = len(name)
    if length < 32:
        string = bytes((0xA0 | length,))                       # fixstr
    elif length < 0x100:
        string = bytes((0xD9, length))                         # str 8
    else:
        string = b"\xDA" + length.to_bytes(2, "big")           # str 16: TOPIC_NAME_BYTES_MAX fits
    header = b"\x81\xA5topic" + string + name
    if len(header) > FLEXIMQ_HEADER_BYTES_MAX:
        return b""
    return len(header).to_bytes(4, "big") + header
