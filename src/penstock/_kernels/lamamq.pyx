"""LamaMQ: push messages to a Batch, rows of any Batch to forwards, answers in bulk.

    push, forward   0            4      5            9             9+K       9+K+H
                    ┌────────────┬──────┬────────────┬─────────────┬─────────┬──────────────┬─────────┐
                    │ message id │ type │ created at │ routing key │ headers │ payload type │ payload │
                    │ u32        │ u8   │ u32        │ STRING      │ ARRAY   │ u8           │ BUFFER  │
                    └────────────┴──────┴────────────┴─────────────┴─────────┴──────────────┴─────────┘
    answer          0            4
                    ┌────────────┬────┐
                    │ message id │ 00 │
                    └────────────┴────┘

STRING and BUFFER are u32 length and bytes, ARRAY is u16 count and pairs of STRING. Routing key and
headers are parsed once and recognised by their bytes while they repeat. A push is forwarded
unchanged, except for message id and type.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from penstock._kernels.batch cimport (
    HAS_CREATED,
    FORM,
    FORM_EMPTY,
    FORM_PLAIN,
    FORM_TEXT,
    HAS_FORMS,
    HAS_FRAMES,
    HAS_HEADERS,
    HAS_MESSAGE_IDS,
    STORED,
    Batch,
    Columns,
    Sender,
    StoredColumns,
    has_room,
    source_of,
)
from penstock._kernels.delivery cimport Delivery, measure_frames
from penstock._kernels.frame cimport (
    advance,
    load16,
    load32,
    put,
    same_bytes,
    store16,
    store32,
    utf8_valid,
)
from penstock._kernels.names cimport NamesAhead, names_find_ahead, names_look_ahead
from penstock._kernels.scanning cimport Scan
from penstock._kernels.topics cimport Topic, TopicTable, topic_at

from penstock.limits import TOPIC_NAME_BYTES_MAX
from penstock.model import RESERVED_HEADER_PREFIX
from penstock.protocols.lamamq import (
    LAMAMQ,
    LAMAMQ_HEADERS_BYTES_MAX,
    LAMAMQ_HEADERS_MAX,
    LAMAMQ_PAYLOAD_BYTES_MAX,
)

cdef enum:
    NUMBER = 5                     # of the protocol
    FEATURES = HAS_FRAMES | HAS_HEADERS | HAS_CREATED | HAS_MESSAGE_IDS | HAS_FORMS
    MESSAGE_HEADER = 5
    KEY = 9                        # where the routing key starts
    PUSH = 0
    FORWARD = 1
    PAYLOAD_EMPTY = 0
    PAYLOAD_STRING = 1
    PAYLOAD_BUFFER = 2
    ANSWER = 5

cdef uint8_t[3] FORM_OF_TYPE = [FORM_EMPTY, FORM_TEXT, FORM_PLAIN]
cdef uint32_t BROKER_ID_BIT = 0x80000000
cdef uint32_t ROUTING_KEY_BYTES_MAX = TOPIC_NAME_BYTES_MAX

cdef bytes _reserved = RESERVED_HEADER_PREFIX.encode()
cdef const uint8_t *RESERVED = _reserved
cdef size_t RESERVED_BYTES = len(_reserved)

if LAMAMQ.number != NUMBER:
    raise ImportError("the number of LamaMQ is not the kernel's")


cdef class LamaScan(Scan):
    cdef bint answers_awaited
    cdef uint32_t headers_max
    cdef uint32_t headers_bytes_max


def scan(
    object data,
    Py_ssize_t start,
    Batch batch not None,
    TopicTable topics not None,
    Sender sender not None,
    *,
    str order not None,
    bint learn_topics=True,
    object permits=None,
    bint answers_awaited=False,
    uint32_t headers_max=LAMAMQ_HEADERS_MAX,
    uint32_t headers_bytes_max=LAMAMQ_HEADERS_BYTES_MAX,
    uint32_t payload_bytes_max=LAMAMQ_PAYLOAD_BYTES_MAX,
):
    cdef LamaScan scan = LamaScan(batch, topics)
    scan.permit(permits)
    scan.learn_topics = learn_topics
    scan.answers_awaited = answers_awaited
    scan.headers_max = headers_max
    scan.headers_bytes_max = headers_bytes_max
    scan.bytes_max = payload_bytes_max
    return scan.walk(data, start, NUMBER, FEATURES, order == "big", sender, run)


cdef inline uint32_t type_of_form(uint32_t form) noexcept nogil:
    """Return the payload type of a value from a push."""
    if form == FORM_TEXT:
        return PAYLOAD_STRING
    return PAYLOAD_EMPTY if form == FORM_EMPTY else PAYLOAD_BUFFER


cdef size_t run(Scan scan, size_t start) noexcept nogil:
    return run_pushes(<LamaScan>scan, start)


cdef size_t run_pushes(LamaScan scan, size_t start) noexcept nogil:
    cdef Columns *columns = &scan.batch.columns
    cdef const uint8_t *data = scan.batch.data
    cdef const uint8_t *frame
    cdef const uint8_t *last_names = NULL          # routing key and headers of the push before
    cdef size_t end = scan.batch.data_length
    cdef size_t expected = 0, available, names = 0, last_names_length = 0, length
    cdef NamesAhead ahead
    cdef bint big = scan.batch.big
    cdef uint32_t key_length = 0, message_id, topic = 0, payload_type, value_length, row
    memset(&ahead, 0, sizeof(ahead))
    while end - start > KEY + 4:
        frame = data + start
        available = end - start
        message_id = load32(frame, big)
        if frame[4] != PUSH or (scan.answers_awaited and message_id & BROKER_ID_BIT):
            break
        if not last_names or available - KEY <= last_names_length or not same_bytes(
            frame + KEY, last_names, last_names_length
        ):
            key_length = load32(frame + KEY, big)
            if key_length > ROUTING_KEY_BYTES_MAX or available - KEY - 4 <= key_length:
                break
            names = headers_length(
                scan, frame + KEY + 4 + key_length, available - KEY - 4 - key_length, big
            )
            if not names:
                break
            topic = names_find_ahead(&scan.topics.by_name, frame + KEY + 4, key_length, &ahead)
            names_look_ahead(
                &scan.topics.by_name, frame + KEY + 4, key_length, expected, data + end, &ahead
            )
            if not topic:
                return scan.stop_at_unknown(start, start + KEY + 4, key_length)
            names += 4 + key_length
            last_names = frame + KEY
            last_names_length = names
        length = KEY + last_names_length           # up to the payload type
        if available <= length:
            break
        payload_type = frame[length]
        length += 1
        value_length = 0
        if payload_type:
            if payload_type > PAYLOAD_BUFFER or available - length < 4:
                break
            value_length = load32(frame + length, big)
            length += 4
            if value_length > scan.bytes_max or available - length < value_length:
                break
        if not scan.permitted(topic - 1) or not has_room(columns, scan.batch.rows_max):
            break
        row = columns.count
        columns.topic[row] = topic - 1
        columns.value_start[row] = <uint32_t>(start + length)
        columns.value_length[row] = value_length
        columns.frame_start[row] = <uint32_t>start
        columns.frame_length[row] = <uint32_t>(length + value_length)
        columns.headers_start[row] = <uint32_t>start + KEY + 4 + key_length
        columns.headers_length[row] = <uint32_t>(last_names_length - 4 - key_length)
        columns.message_id[row] = message_id
        columns.created[row] = load32(frame + 5, big)
        columns.flags[row] = FORM_OF_TYPE[payload_type]
        columns.count = row + 1
        start = advance(start, length + value_length, &expected)
    return start


cdef inline bint is_reserved(const uint8_t *key, size_t length) noexcept nogil:
    """Return whether only the broker may set a header: its key begins with RESERVED."""
    return length >= RESERVED_BYTES and memcmp(key, RESERVED, RESERVED_BYTES) == 0


cdef size_t headers_length(
    LamaScan scan, const uint8_t *headers, size_t available, bint big
) noexcept nogil:
    """Return the bytes of a header array, its count included; 0 if it is for the plain codec.

    That is one that is cut short, not valid, or has a reserved key.
    """
    cdef size_t at = 2
    cdef uint32_t count, length, part
    if available < 2:
        return 0
    count = load16(headers, big)
    if count > scan.headers_max:
        return 0
    for part in range(2 * count):                  # key, value, key, value …
        if available - at < 4:
            return 0
        length = load32(headers + at, big)
        at += 4
        if at - 2 + length > scan.headers_bytes_max or available - at < length:
            return 0
        if part % 2 == 0 and (
            is_reserved(headers + at, length) or not utf8_valid(headers + at, length)
        ):
            return 0
        at += length
    return at


def encode(
    Batch batch not None,
    TopicTable topics not None,
    *,
    str order not None,
    uint32_t first_message_id,
    object rows=None,
):
    cdef Delivery delivery = Delivery(batch, topics, rows)
    delivery.big = order == "big"
    delivery.message_id = first_message_id
    if batch.source == STORED:
        return delivery.frames(measure_stored, write_stored)
    if batch.source != NUMBER:
        return delivery.frames(measure, write)
    if batch.big == delivery.big:
        return delivery.frames(measure_frames, forward)
    return delivery.frames(measure_frames, forward_turned)


cdef inline void start_forward(Delivery delivery, uint32_t position, uint8_t *out) noexcept nogil:
    store32(out, BROKER_ID_BIT | (delivery.message_id + position), delivery.big)
    out[4] = FORWARD


cdef void forward(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Forward pushes unchanged, except for message id and type."""
    cdef const uint32_t *frame_start = delivery.batch.columns.frame_start
    cdef const uint32_t *frame_length = delivery.batch.columns.frame_length
    cdef const uint8_t *data = delivery.batch.data + MESSAGE_HEADER
    cdef const uint8_t *data_end = delivery.batch.data + delivery.batch.data_length
    cdef uint32_t position, row
    for position in range(delivery.count):
        row = delivery.row(position)
        start_forward(delivery, position, out)
        out = delivery.place(
            out + MESSAGE_HEADER,
            end,
            data + frame_start[row],
            data_end,
            frame_length[row] - MESSAGE_HEADER,
        )


cdef void forward_turned(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Forward pushes to clients of the other byte order."""
    cdef Columns *columns = &delivery.batch.columns
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef bint big = delivery.big
    cdef uint32_t position, row, payload_type
    cdef Topic *topic
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(delivery.topics.chunks, columns.topic[row])
        payload_type = type_of_form(columns.flags[row] & FORM)
        start_forward(delivery, position, out)
        store32(out + 5, columns.created[row], big)
        store32(out + KEY, topic.name_length, big)
        out = put(out + KEY + 4, end, topic.name, topic.block_end, topic.name_length)
        out = turn_headers(out, end, data + columns.headers_start[row], data_end, big)
        out[0] = <uint8_t>payload_type
        out += 1
        if payload_type:
            store32(out, columns.value_length[row], big)
            out = delivery.place(
                out + 4, end, data + columns.value_start[row], data_end, columns.value_length[row]
            )


cdef uint8_t *turn_headers(
    uint8_t *out, const uint8_t *end, const uint8_t *headers, const uint8_t *headers_end, bint big
) noexcept nogil:
    """Write a scanned header array in the other byte order."""
    cdef uint32_t count = load16(headers, not big)
    cdef uint32_t part, length
    store16(out, count, big)
    out += 2
    headers += 2
    for part in range(2 * count):
        length = load32(headers, not big)
        store32(out, length, big)
        out = put(out + 4, end, headers + 4, headers_end, length)
        headers += 4 + length
    return out


cdef size_t measure(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic = delivery.batch.columns.topic
    cdef size_t size = <size_t>(KEY + 4 + 2 + 1) * delivery.count
    cdef uint32_t position, row, length
    for position in range(delivery.count):
        row = delivery.row(position)
        length = delivery.batch.columns.value_length[row]
        size += topic_at(chunks, topic[row]).name_length + (4 + length if length else 0)
    return size


cdef void write(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Forward messages of other protocols, without headers and with the broker's time."""
    cdef Topic **chunks = delivery.topics.chunks
    cdef const uint32_t *topic_id = delivery.batch.columns.topic
    cdef const uint32_t *value_start = delivery.batch.columns.value_start
    cdef const uint32_t *value_length = delivery.batch.columns.value_length
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef uint32_t created = <uint32_t>(delivery.batch.timestamp_us // 1000000)
    cdef bint big = delivery.big
    cdef uint32_t position, row
    cdef Topic *topic
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(chunks, topic_id[row])
        start_forward(delivery, position, out)
        store32(out + 5, created, big)
        store32(out + KEY, topic.name_length, big)
        out = put(out + KEY + 4, end, topic.name, topic.block_end, topic.name_length)
        store16(out, 0, big)
        out[2] = PAYLOAD_BUFFER if value_length[row] else PAYLOAD_EMPTY
        out += 3
        if value_length[row]:
            store32(out, value_length[row], big)
            out = delivery.place(out + 4, end, data + value_start[row], data_end, value_length[row])


# --- Messages of a log --------------------------------------------------------------------------


cdef inline uint32_t payload_type_of(Batch batch, uint32_t row) noexcept nogil:
    if source_of(batch, row) != NUMBER:
        return PAYLOAD_BUFFER if batch.columns.value_length[row] else PAYLOAD_EMPTY
    return type_of_form(batch.columns.flags[row] & FORM)


cdef inline uint32_t header_count(Batch batch, uint32_t row) noexcept nogil:
    """Return the number of headers of a forward: those of a push, 0 for other protocols."""
    if source_of(batch, row) != NUMBER:
        return 0
    return load32(batch.stored.headers + 4 * <size_t>row + 4, False) - load32(
        batch.stored.headers + 4 * <size_t>row, False
    )


cdef inline uint32_t entries_length(
    const uint8_t *offsets, size_t first, uint32_t count
) noexcept nogil:
    """Return the bytes of the keys, or values, of `count` entries."""
    return load32(offsets + 4 * (first + count), False) - load32(offsets + 4 * first, False)


cdef size_t measure_stored(Delivery delivery) noexcept nogil:
    cdef Topic **chunks = delivery.topics.chunks
    cdef Columns columns = delivery.batch.columns
    cdef StoredColumns *stored = &delivery.batch.stored
    cdef size_t size = <size_t>(KEY + 4 + 2 + 1) * delivery.count
    cdef size_t first
    cdef uint32_t position, row, count
    for position in range(delivery.count):
        row = delivery.row(position)
        size += topic_at(chunks, columns.topic[row]).name_length
        if payload_type_of(delivery.batch, row):
            size += 4 + <size_t>columns.value_length[row]
        count = header_count(delivery.batch, row)
        if count:
            first = load32(stored.headers + 4 * <size_t>row, False)
            size += 8 * <size_t>count
            size += entries_length(stored.header_keys, first, count)
            size += entries_length(stored.header_values, first, count)
    return size


cdef void write_stored(Delivery delivery, uint8_t *out, const uint8_t *end) noexcept nogil:
    """Forward messages of any protocol; a push keeps its headers and its created time."""
    cdef Topic **chunks = delivery.topics.chunks
    cdef Columns columns = delivery.batch.columns
    cdef const uint8_t *data = delivery.batch.data
    cdef const uint8_t *data_end = data + delivery.batch.data_length
    cdef bint big = delivery.big
    cdef uint32_t position, row, count, payload_type
    cdef Topic *topic
    for position in range(delivery.count):
        row = delivery.row(position)
        topic = topic_at(chunks, columns.topic[row])
        payload_type = payload_type_of(delivery.batch, row)
        count = header_count(delivery.batch, row)
        start_forward(delivery, position, out)
        store32(out + 5, columns.created[row], big)
        store32(out + KEY, topic.name_length, big)
        out = put(out + KEY + 4, end, topic.name, topic.block_end, topic.name_length)
        store16(out, count, big)
        out += 2
        if count:
            out = put_headers(delivery.batch, row, count, big, out, end)
        out[0] = <uint8_t>payload_type
        out += 1
        if payload_type:
            store32(out, columns.value_length[row], big)
            out = put(
                out + 4, end, data + columns.value_start[row], data_end, columns.value_length[row]
            )


cdef uint8_t *put_headers(
    Batch batch, uint32_t row, uint32_t count, bint big, uint8_t *out, const uint8_t *end
) noexcept nogil:
    """Write the entries of a header array from Arrow's columns."""
    cdef StoredColumns *stored = &batch.stored
    cdef const uint8_t *data_end = batch.data + batch.data_length
    cdef size_t first = load32(stored.headers + 4 * <size_t>row, False)
    cdef size_t entry
    for entry in range(first, first + count):
        out = put_entry(
            stored.header_keys, stored.header_key_data, entry, big, out, end, data_end
        )
        out = put_entry(
            stored.header_values, stored.header_value_data, entry, big, out, end, data_end
        )
    return out


cdef inline uint8_t *put_entry(
    const uint8_t *offsets,
    const uint8_t *data,
    size_t entry,
    bint big,
    uint8_t *out,
    const uint8_t *end,
    const uint8_t *data_end,
) noexcept nogil:
    cdef uint32_t start = load32(offsets + 4 * entry, False)
    cdef uint32_t length = load32(offsets + 4 * entry + 4, False) - start
    store32(out, length, big)
    return put(out + 4, end, data + start, data_end, length)


def acknowledge(Batch batch not None):
    if batch.source != NUMBER:
        raise ValueError("only pushes of LamaMQ are answered by their message ids")
    cdef bytes answers = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>batch.columns.count * ANSWER)
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(answers)
    cdef uint32_t row
    batch.read()
    try:
        for row in range(batch.columns.count):
            store32(out, batch.columns.message_id[row], batch.big)
            out[4] = 0
            out += ANSWER
    finally:
        batch.unread()
    return answers


def answers(const uint8_t[::1] data not None, size_t start, *, str order not None):
    cdef size_t end = data.shape[0]
    cdef size_t at = start
    cdef bint big = order == "big"
    cdef uint32_t first, identifier
    if at > end or end - at < ANSWER:
        return 0, 0
    first = identifier = load32(&data[at], big)
    # The id behind the highest one has no top bit, so a run ends there.
    while identifier & BROKER_ID_BIT and not data[at + 4]:
        at += ANSWER
        identifier += 1
        if end - at < ANSWER or load32(&data[at], big) != identifier:
            break
    return first & ~BROKER_ID_BIT, (at - start) // ANSWER
