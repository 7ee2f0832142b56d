"""Entries of a row index: the place and the checksum of single messages of a row group.

The checksum covers the message as one record, so that it can be read and checked without the others
of its row group. See storage/arrow/format/row_record.py, which builds the same bytes to read one.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from penstock._kernels.frame cimport load16, load32, load64, store16, store32, store64
from penstock._kernels.row_buffers cimport (
    BUFFER_COUNT,
    CLIENT,
    CREATED,
    CREATED_VALIDITY,
    FORMS,
    HEADER_KEYS,
    HEADER_VALUES,
    HEADERS,
    KIND,
    PROTOCOL,
    SENDER,
    STATUS,
    STATUS_VALIDITY,
    TIMESTAMP,
    TOPIC,
    VALUE_DATA,
    VALUE_OFFSETS,
    Dictionary,
    Region,
    check_lengths,
    entry_at,
    is_valid,
    part_of,
)

cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend(uint32_t state, const uint8_t *p, size_t n)

cdef enum:
    HEAD_BYTES = 72                # of a record
    ENTRY_BYTES_ = 10

cdef uint32_t NOT_LISTED_ = 0xFFFFFFFF

HEAD = HEAD_BYTES
ENTRY_BYTES = ENTRY_BYTES_
NOT_LISTED = NOT_LISTED_

crc32c_prepare()


cdef struct RowGroup:
    Region columns[BUFFER_COUNT]
    Dictionary topics
    Dictionary senders
    uint32_t count
    uint64_t base_offset


cdef Region region_of(const uint8_t[::1] data, object start, object length) except *:
    cdef Region region
    if not 0 <= start <= start + length <= data.shape[0]:
        raise ValueError(f"{length} bytes at {start} of {data.shape[0]}")
    region.length = <size_t>length
    region.start = &data[0] + <size_t>start if data.shape[0] else NULL
    return region


cdef Dictionary names_of(const uint8_t[::1] data, object dictionary) except *:
    cdef Dictionary names
    offsets_start, offsets_length, data_start, data_length = dictionary
    names.offsets = region_of(data, offsets_start, offsets_length)
    names.data = region_of(data, data_start, data_length)
    names.entries = max(<uint32_t>min(names.offsets.length // 4, <size_t>0x10001), 1) - 1
    return names


def topic_hashes(const uint8_t[::1] data not None, tuple dictionary not None, uint32_t entries):
    cdef Dictionary names = names_of(data, dictionary)
    cdef Region name
    cdef list found = []
    cdef uint32_t entry
    for entry in range(entries):
        if not entry_at(&names, entry, &name):
            raise ValueError("a topic's name is not inside the group")
        found.append(<uint32_t>~crc32c_extend(0xFFFFFFFF, name.start, name.length))
    return found


def list_rows(
    const uint8_t[::1] data not None,
    tuple layout not None,
    tuple topic_dictionary not None,
    tuple sender_dictionary not None,
    uint32_t[::1] slots not None,
    const uint32_t[::1] hashes not None,
    uint8_t[::1] entries not None,
    *,
    uint32_t count,
    uint64_t base_offset,
):
    cdef RowGroup group
    cdef const char *fault
    cdef int buffer
    if len(layout) != 2 * BUFFER_COUNT:
        raise ValueError(f"{len(layout)} numbers for {BUFFER_COUNT} buffers")
    for buffer in range(BUFFER_COUNT):
        group.columns[buffer] = region_of(data, layout[2 * buffer], layout[2 * buffer + 1])
    group.topics = names_of(data, topic_dictionary)
    group.senders = names_of(data, sender_dictionary)
    group.count = count
    group.base_offset = base_offset
    if hashes.shape[0] != slots.shape[0] or not slots.shape[0] or not entries.shape[0]:
        raise ValueError(f"{slots.shape[0]} slots and {hashes.shape[0]} hashes")
    with nogil:
        fault = fill(
            &group, &slots[0], &hashes[0], <uint32_t>slots.shape[0],
            &entries[0], <size_t>entries.shape[0],
        )
    if fault:
        raise ValueError(fault.decode())


cdef const char *fill(
    RowGroup *group,
    uint32_t *slots,
    const uint32_t *hashes,
    uint32_t topics,
    uint8_t *entries,
    size_t size,
) noexcept nogil:
    """Write the entry of each row of a listed topic to the topic's next slot; return a fault."""
    cdef const char *fault = check_lengths(group.columns, group.count)
    cdef const uint8_t *indices = group.columns[TOPIC].start
    cdef uint8_t *entry
    cdef uint32_t row, topic, checksum = 0
    if fault:
        return fault
    for row in range(group.count):
        topic = load16(indices + 2 * <size_t>row, False)
        if topic >= topics:
            return b"a topic is not in the dictionary"
        if slots[topic] == NOT_LISTED_:
            continue
        if ENTRY_BYTES_ * (<size_t>slots[topic] + 1) > size:
            return b"more rows than were counted"
        if not checksum_of(group, row, topic, &checksum):
            return b"a row is not inside the group"
        entry = entries + ENTRY_BYTES_ * <size_t>slots[topic]
        store32(entry, hashes[topic], False)
        store16(entry + 4, <uint16_t>row, False)
        store32(entry + 6, checksum, False)
        slots[topic] += 1
    return NULL


cdef bint checksum_of(RowGroup *group, uint32_t row, uint32_t topic, uint32_t *checksum) noexcept nogil:
    """Compute the checksum of a row as a record; return whether it is inside the group."""
    cdef Region *columns = group.columns
    cdef const uint8_t *offsets = columns[VALUE_OFFSETS].start + 4 * <size_t>row
    cdef const uint8_t *headers = columns[HEADERS].start + 4 * <size_t>row
    cdef uint32_t first = load32(headers, False), last = load32(headers + 4, False)
    cdef uint32_t state = 0xFFFFFFFF
    cdef uint8_t[HEAD_BYTES] head
    cdef Region name, sender, value, keys, values
    keys.length = values.length = 0
    if (
        not entry_at(&group.topics, topic, &name)
        or not entry_at(&group.senders, load16(columns[SENDER].start + 2 * <size_t>row, False), &sender)
        or not part_of(&columns[VALUE_DATA], load32(offsets, False), load32(offsets + 4, False), &value)
        or first > last
    ):
        return False
    memset(head, 0, HEAD_BYTES)
    store64(head, group.base_offset + row, False)
    store64(head + 8, load64(columns[TIMESTAMP].start + 8 * <size_t>row, False), False)
    if is_valid(&columns[CREATED_VALIDITY], row):
        store64(head + 16, load64(columns[CREATED].start + 8 * <size_t>row, False), False)
        head[67] = 1
    if is_valid(&columns[STATUS_VALIDITY], row):
        store32(head + 24, load32(columns[STATUS].start + 4 * <size_t>row, False), False)
        head[68] = 1
    store32(head + 28, load32(columns[CLIENT].start + 4 * <size_t>row, False), False)
    store32(head + 36, <uint32_t>name.length, False)
    store32(head + 44, <uint32_t>sender.length, False)
    store32(head + 52, last - first, False)
    store32(head + 60, <uint32_t>value.length, False)
    head[64] = columns[PROTOCOL].start[row]
    head[65] = columns[KIND].start[row]
    head[66] = columns[FORMS].start[row]
    state = crc32c_extend(state, head, HEAD_BYTES)
    if last > first:
        if not texts_of(columns, HEADER_KEYS, first, last, &keys, &state):
            return False
        if not texts_of(columns, HEADER_VALUES, first, last, &values, &state):
            return False
    state = crc32c_extend(state, name.start, name.length)
    state = crc32c_extend(state, sender.start, sender.length)
    if last > first:
        state = crc32c_extend(state, keys.start, keys.length)
        state = crc32c_extend(state, values.start, values.length)
    checksum[0] = ~crc32c_extend(state, value.start, value.length)
    return True


cdef bint texts_of(
    Region *columns, int buffer, uint32_t first, uint32_t last, Region *texts, uint32_t *state
) noexcept nogil:
    """Find the joined texts of some headers, and add their offsets, from 0 on, to a checksum."""
    cdef const uint8_t *offsets = columns[buffer].start
    cdef uint32_t number, start, before, end
    cdef uint8_t[4] word
    if columns[buffer].length < 4 * (<size_t>last + 1):
        return False
    before = start = load32(offsets + 4 * <size_t>first, False)
    for number in range(first, last + 1):
        end = load32(offsets + 4 * <size_t>number, False)
        if end < before:
            return False
        before = end
        store32(word, end - start, False)
        state[0] = crc32c_extend(state[0], word, 4)
    return part_of(&columns[buffer + 1], start, before, texts)
