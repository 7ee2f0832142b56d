"""The topic table: interns topic names as numeric ids.

Lookups run without the GIL beside an insertion in another thread (see names.h); insertions hold it.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from penstock._kernels.frame cimport LOOSE
from penstock._kernels.names cimport names_add, names_close, names_find, names_open

from penstock.errors import InvalidTopicName, TopicTableFull
from penstock.limits import TOPICS_MAX, TOPIC_NAME_BYTES_MAX
from penstock.model import binary_topic_name, is_publishable, topic_name_from_binary


cdef class TopicTable:
    def __cinit__(self, *, uint32_t capacity=TOPICS_MAX):
        cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")
        if not 0 < capacity <= TOPICS_PER_CHUNK * CHUNKS:
            raise ValueError(f"capacity is {capacity}, allowed are 1 to {TOPICS_PER_CHUNK * CHUNKS}")
        self.capacity = capacity
        self.names = []
        if not names_open(&self.by_name, seed) or not names_open(&self.by_binary_name, seed):
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t identifier
        names_close(&self.by_name)
        names_close(&self.by_binary_name)
        for identifier in range(self.count):
            free(topic_at(self.chunks, identifier).name)
        for chunk in range(CHUNKS):
            free(self.chunks[chunk])

    def __len__(self):
        return self.count

    def intern(self, str name not None):
        identifier = self.find(name)
        return self.add(name) if identifier is None else identifier

    def intern_binary(self, bytes name not None):
        identifier = self.find_binary(name)
        return self.intern(topic_name_from_binary(name)) if identifier is None else identifier

    def find(self, str name not None):
        cdef bytes encoded = name.encode()
        cdef uint32_t number = names_find(&self.by_name, start_of(encoded), PyBytes_GET_SIZE(encoded))
        return number - 1 if number else None

    def find_binary(self, bytes name not None):
        cdef uint32_t number = names_find(&self.by_binary_name, start_of(name), PyBytes_GET_SIZE(name))
        return number - 1 if number else None

    def name(self, uint32_t identifier):
        return self.names[identifier]

    def bind_channel(self, uint8_t channel, str name not None):
        cdef uint32_t identifier = self.intern(name)
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
            self.intern_binary(name) if binary else self.intern(name.decode())
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
        if identifier == self.capacity:
            raise TopicTableFull(self.capacity)
        if not self.chunks[identifier // TOPICS_PER_CHUNK]:
            self.chunks[identifier // TOPICS_PER_CHUNK] = <Topic *>calloc(
                TOPICS_PER_CHUNK, sizeof(Topic)
            )
            if not self.chunks[identifier // TOPICS_PER_CHUNK]:
                raise MemoryError
        topic = topic_at(self.chunks, identifier)
        write_topic(topic, encoded, binary, fleximq_publication_header(encoded))
        self.names.append(name)
        self.count += 1
        # A name that Rheos cannot address is not added: its bytes may be those of another name.
        if topic_name_from_binary(binary) == name and not names_add(
            &self.by_binary_name, topic.binary_name, topic.binary_name_length, identifier + 1
        ):
            raise MemoryError
        if not names_add(&self.by_name, topic.name, topic.name_length, identifier + 1):
            raise MemoryError
        return identifier


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
    """Return the header section of a PUB: u32 length and the MessagePack map {"topic": name}."""
    cdef size_t length = len(name)
    if length < 32:
        string = bytes((0xA0 | length,))                       # fixstr
    elif length < 0x100:
        string = bytes((0xD9, length))                         # str 8
    else:
        string = b"\xDA" + length.to_bytes(2, "big")           # str 16: TOPIC_NAME_BYTES_MAX fits
    header = b"\x81\xA5topic" + string + name
    return len(header).to_bytes(4, "big") + header
