"""The Block: rows of many batches as the columns of one group of the log.

The event loop's thread adds rows, copying their bytes out of the receive buffer. Then a writer
thread finishes the block: it computes the remaining columns and returns all of them as Arrow's
flattened buffers (see storage/arrow/format/segment.py). An unused column takes no memory: it is
returned as the number of its zero bytes.
"""

from array import array

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from penstock._kernels.batch cimport (
    HAS_CREATED,
    FORM,
    FORM_PLAIN,
    HAS_FORMS,
    HAS_HEADERS,
    NO_SOURCE,
    HAS_SENDERS,
    SENDERS_MAX,
    HAS_STATUS,
    SHORT_BYTES,
    STORED,
    Batch,
    Columns,
)
from penstock._kernels.frame cimport LOOSE, UUID_VARIANT, load16, load32, put
from penstock._kernels.topics cimport Topic, TopicTable, topic_at

from penstock.limits import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX, TOPIC_NAME_BYTES_MAX
from penstock.model import message_id
from penstock.protocols import SOURCES

cdef enum:
    NO_POSITION = 0xFF
    PRIVATE = 0x80
    MESSAGE_ID = 36                # characters of a UUID
    MESSAGE_ID_PREFIX = 19         # characters that all messages of a log share
    ROW_BYTES = 32                 # of a row's columns of fixed size, about
    OFFSET_MAX = 0x7FFFFFFF        # Arrow's offsets have 31 bits
    TOPIC_NAME_MAX = 65535         # limits.TOPIC_NAME_BYTES_MAX
    ROW_COLUMNS = 24               # columns of Rows before the dictionary of topics
    TOPICS_CACHED = 1024           # entries of so many topics fit into the processor's cache
    ROWS_AHEAD = 24                # the topic of a row is prefetched this many rows before its turn
    FEW_ROWS = 512                 # up to this, releasing the GIL costs more than it gains

if TOPIC_NAME_BYTES_MAX > TOPIC_NAME_MAX:
    raise ImportError("topic names are longer than the kernel counts with")

cdef extern from *:
    void fetch "__builtin_prefetch"(const void *) noexcept nogil

cdef uint8_t POSITIONS[256]        # in the dictionary of protocols, by a source's number

memset(POSITIONS, NO_POSITION, sizeof(POSITIONS))
for _position, _source in enumerate(SOURCES.values()):
    POSITIONS[<uint8_t>_source.number] = <uint8_t>_position

cdef uint8_t HEX[512]              # two digits for each byte

cdef void fill_hex() noexcept:
    cdef uint32_t byte
    cdef bytes digits = b"0123456789abcdef"
    for byte in range(256):
        HEX[2 * byte] = digits[byte >> 4]
        HEX[2 * byte + 1] = digits[byte & 15]

fill_hex()


cdef struct Column:
    # A growing buffer; `length` bytes are in use.
    uint8_t *data
    size_t length
    size_t capacity


cdef struct Rows:
    # One element for each row. `*_end` are Arrow's offsets: they start with a zero.
    Column value, value_end, topic, sender, client, timestamp, protocol, kind, form
    # Filled from the first row that has a value; `*_valid` has a byte for each row.
    Column created, created_valid, status, status_valid
    Column correlation, correlation_end, correlation_valid, key, key_end, key_valid
    Column headers_end, header_key, header_key_end, header_value, header_value_end
    # The dictionary of topics.
    Column name, name_end


cdef struct Made:
    # Columns that `finish` computes.
    Column offset, timestamp_type, message_id, message_id_end, partition
    Column created_bits, status_bits, correlation_bits, key_bits


cdef bint reserve(Column *column, size_t more) noexcept nogil:
    """Make room for `more` bytes after those in use, and LOOSE more for copy_loose()."""
    cdef size_t needed = column.length + more + LOOSE
    cdef void *wider
    if needed <= column.capacity:
        return True
    needed = max(needed, 2 * column.capacity)
    wider = realloc(column.data, needed)
    if not wider:
        return False
    column.data = <uint8_t *>wider
    column.capacity = needed
    return True


cdef object view(Column *column):
    return PyMemoryView_FromMemory(<char *>column.data, <Py_ssize_t>column.length, PyBUF_READ)


class Names:
    def __init__(self, ends, data):
        self.ends = ends
        self.data = data

    def __len__(self):
        return len(self.ends) // 4 - 1

    def __iter__(self):
        ends = memoryview(self.ends).cast("B").cast("i")
        for place in range(len(self)):
            yield bytes(self.data[ends[place]:ends[place + 1]])

    def __contains__(self, name):
        return any(each == name for each in self)

    @classmethod
    def of(cls, names):
        ends = array("i", [0])
        for name in names:
            ends.append(ends[-1] + len(name))
        return cls(ends.tobytes(), b"".join(names))


cdef class TopicSlots:
    """Index of each topic in the current block's dictionary; the blocks of a log share it."""
    cdef uint32_t *epoch_of        # the block that `slot_of` was set for
    cdef uint16_t *slot_of
    cdef uint32_t capacity
    cdef uint32_t epoch

    def __dealloc__(self):
        free(self.epoch_of)
        free(self.slot_of)

    cdef int widen(self, uint32_t count) except -1:
        cdef uint32_t capacity = max(count, 2 * self.capacity)
        cdef void *wider
        if count <= self.capacity:
            return 0
        wider = realloc(self.slot_of, capacity * sizeof(uint16_t))
        if not wider:
            raise MemoryError
        self.slot_of = <uint16_t *>wider
        wider = realloc(self.epoch_of, capacity * sizeof(uint32_t))
        if not wider:
            raise MemoryError
        self.epoch_of = <uint32_t *>wider
        memset(self.epoch_of + self.capacity, 0, (capacity - self.capacity) * sizeof(uint32_t))
        self.capacity = capacity
        return 0


cdef class Block:
    cdef readonly uint32_t count
    cdef readonly uint32_t rows_max
    cdef readonly size_t bytes_max
    cdef readonly int durability   # the strongest that a row of the last `append` requires
    cdef TopicSlots slots
    cdef uint32_t epoch
    cdef list senders
    cdef dict sender_slots
    cdef uint32_t next_topic_slot
    cdef dict record_topics        # slots of topics added by append_record
    cdef Rows rows
    cdef Made made

    def __cinit__(
        self,
        TopicSlots slots not None,
        *,
        uint32_t rows_max=BLOCK_ROWS_MAX,
        size_t bytes_max=BLOCK_BYTES_MAX,
    ):
        if not 0 < rows_max <= 65536 or not 0 < bytes_max <= 1 << 30:
            raise ValueError("a block has 1 to 65,536 rows and 1 byte to 1 GiB")
        self.slots = slots
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.clear()

    def __dealloc__(self):
        cdef Column *column = <Column *>&self.rows
        cdef size_t index
        for index in range(sizeof(Rows) // sizeof(Column)):
            free(column[index].data)
        column = <Column *>&self.made
        for index in range(sizeof(Made) // sizeof(Column)):
            free(column[index].data)

    def __len__(self):
        return self.count

    @property
    def value_bytes(self):
        return self.content_bytes()

    @property
    def held_bytes(self):
        return self.variable_bytes() + ROW_BYTES * <size_t>self.count

    @property
    def full(self):
        return (
            self.count >= self.rows_max
            or self.variable_bytes() >= self.bytes_max
            or self.rows.name.length > OFFSET_MAX - TOPIC_NAME_MAX
        )

    cdef size_t variable_bytes(self) noexcept nogil:
        """Return the bytes of all values, keys, headers, correlations and names of topics."""
        cdef Rows *rows = &self.rows
        return (
            rows.value.length
            + rows.key.length
            + rows.correlation.length
            + rows.header_key.length
            + rows.header_value.length
            + rows.name.length
        )

    def clear(self):
        cdef Column *column = <Column *>&self.rows
        cdef size_t index
        self.count = 0
        self.next_topic_slot = 0
        self.record_topics = {}
        self.senders = []
        self.sender_slots = {}
        self.slots.epoch += 1
        if not self.slots.epoch:       # after four billion blocks: old entries must not match
            memset(self.slots.epoch_of, 0, self.slots.capacity * sizeof(uint32_t))
            self.slots.epoch = 1
        self.epoch = self.slots.epoch
        for index in range(sizeof(Rows) // sizeof(Column)):
            column[index].length = 0

    # --- Adding rows ----------------------------------------------------------------------------

    def append(
        self,
        Batch batch not None,
        TopicTable topics not None,
        uint32_t first_row,
        bytes sender_name not None,
        const uint8_t[::1] durability_of_topic=None,
        *,
        int durability,
    ):
        cdef uint16_t sender_slots[SENDERS_MAX]
        cdef const uint8_t *durabilities = NULL
        cdef uint32_t known = 0, rows, index
        cdef int strongest
        cdef bint row_senders = batch.features & HAS_SENDERS
        if self.epoch != self.slots.epoch:
            raise RuntimeError("only the newest block of a log takes rows")
        if first_row > batch.columns.count:
            raise IndexError(f"row {first_row} of a batch of {batch.columns.count}")
        if batch.source == NO_SOURCE or batch.source == STORED:
            raise ValueError("only what was received is appended")
        if batch.source > 0xFF or POSITIONS[batch.source] == NO_POSITION:
            raise ValueError(f"no source has the number {batch.source}")
        if durability_of_topic is not None and durability_of_topic.shape[0]:
            durabilities = &durability_of_topic[0]
            known = <uint32_t>durability_of_topic.shape[0]
        self.slots.widen(topics.count)
        batch.read()
        try:
            if not rows_hold(batch, first_row, topics.count, row_senders):
                raise ValueError("a row of the batch is not inside its data")
            rows = self.rows_that_fit(batch, topics.chunks, first_row)
            if not rows:
                return 0
            if row_senders:
                for index in range(batch.sender_count):
                    sender_slots[index] = self.sender_slot(uuid_text(batch.senders[index].uuid))
            else:
                sender_slots[0] = self.sender_slot(sender_name)
            if batch.data_length <= SHORT_BYTES:
                strongest = self.add_rows(
                    batch, topics.chunks, first_row, rows, sender_slots, row_senders, durabilities,
                    known, durability,
                )
            else:
                with nogil:
                    strongest = self.add_rows(
                        batch, topics.chunks, first_row, rows, sender_slots, row_senders,
                        durabilities, known, durability,
                    )
            if strongest < 0:
                raise MemoryError
        finally:
            batch.unread()
        self.durability = strongest
        return rows

    cdef uint32_t rows_that_fit(self, Batch batch, Topic **chunks, uint32_t first_row) noexcept nogil:
        """Return how many rows from `first_row` on fit: at least one if the block is empty.

        Values and headers count. Names of topics must only fit Arrow's offsets of 31 bits.
        """
        cdef const uint32_t *headers_length = NULL
        cdef size_t size = self.content_bytes(), names = self.rows.name.length
        cdef uint32_t room = self.rows_max - self.count
        cdef uint32_t rows = 0
        cdef uint32_t most = min(batch.columns.count - first_row, room)
        cdef uint32_t topic, last = <uint32_t>0xFFFFFFFF
        if batch.features & HAS_HEADERS:
            headers_length = batch.columns.headers_length
        while rows < most and size < self.bytes_max:
            size += batch.columns.value_length[first_row + rows]
            if headers_length:
                size += headers_length[first_row + rows]
            if size > OFFSET_MAX:
                break
            rows += 1
        if rows <= (OFFSET_MAX - names) // TOPIC_NAME_MAX:
            return rows                # whatever their topics are
        most, rows = rows, 0
        while rows < most:
            topic = batch.columns.topic[first_row + rows]
            if topic != last and self.slots.epoch_of[topic] != self.epoch:
                names += topic_at(chunks, topic).name_length
                if names > OFFSET_MAX:
                    break
            last = topic
            rows += 1
        return rows

    cdef size_t content_bytes(self) noexcept nogil:
        """Return the bytes of values and headers."""
        return self.rows.value.length + self.rows.header_key.length + self.rows.header_value.length

    cdef int add_rows(
        self,
        Batch batch,
        Topic **chunks,
        uint32_t first_row,
        uint32_t rows,
        const uint16_t *sender_slots,
        bint row_senders,
        const uint8_t *durabilities,
        uint32_t known,
        int durability,
    ) noexcept nogil:
        """Add rows that fit; return the strongest durability among their topics, or -1."""
        cdef const uint8_t *data_end = batch.data + batch.data_length
        cdef uint32_t row, topic, ahead, end_row = first_row + rows, place = self.count
        cdef size_t size = 0
        cdef int strongest = 0, asked
        cdef bint many_topics = self.slots.capacity > TOPICS_CACHED
        cdef Topic *named
        cdef uint8_t *out
        cdef int32_t *value_end
        cdef uint16_t *topic_out
        cdef uint16_t *sender_out
        cdef size_t lengths[ROW_COLUMNS]
        self.save_lengths(lengths)
        for row in range(first_row, end_row):
            size += batch.columns.value_length[row]
        if not (
            reserve(&self.rows.value, size)
            and start_ends(&self.rows.value_end)
            and reserve(&self.rows.value_end, rows * sizeof(int32_t))
            and reserve(&self.rows.topic, rows * sizeof(uint16_t))
            and reserve(&self.rows.sender, rows * sizeof(uint16_t))
            and reserve(&self.rows.client, rows * sizeof(uint32_t))
            and reserve(&self.rows.timestamp, rows * sizeof(int64_t))
            and reserve(&self.rows.protocol, rows)
            and reserve(&self.rows.kind, rows)
            and reserve(&self.rows.form, rows)
        ):
            return -1
        out = self.rows.value.data + self.rows.value.length
        value_end = <int32_t *>self.rows.value_end.data + place + 1
        topic_out = <uint16_t *>self.rows.topic.data + place
        sender_out = <uint16_t *>self.rows.sender.data + place
        for row in range(first_row, end_row):
            topic = batch.columns.topic[row]
            if many_topics and end_row - row > ROWS_AHEAD:
                # Not in a function: GCC omits calls of functions that only prefetch.
                ahead = batch.columns.topic[row + ROWS_AHEAD]
                fetch(&self.slots.epoch_of[ahead])
                fetch(&self.slots.slot_of[ahead])
                fetch(&topic_at(chunks, ahead).name)
                fetch(&topic_at(chunks, ahead).name_length)
                ahead = batch.columns.topic[row + ROWS_AHEAD // 2]
                if self.slots.epoch_of[ahead] != self.epoch:
                    fetch(topic_at(chunks, ahead).name)
            if self.slots.epoch_of[topic] != self.epoch:   # new to this block
                named = topic_at(chunks, topic)
                if not add_bytes(
                    &self.rows.name, &self.rows.name_end, named.name, named.name_length
                ):
                    return -1
                self.slots.epoch_of[topic] = self.epoch
                self.slots.slot_of[topic] = <uint16_t>self.next_topic_slot
                self.next_topic_slot += 1
            topic_out[0] = self.slots.slot_of[topic]
            topic_out += 1
            asked = durabilities[topic] if topic < known else durability
            if asked > strongest:
                strongest = asked
            sender_out[0] = sender_slots[batch.columns.sender[row] if row_senders else 0]
            sender_out += 1
            out = put(
                out,
                self.rows.value.data + self.rows.value.capacity,
                batch.data + batch.columns.value_start[row],
                data_end,
                batch.columns.value_length[row],
            )
            value_end[0] = <int32_t>(out - self.rows.value.data)
            value_end += 1
        self.rows.value.length += size
        fill32(&self.rows.client, batch.sender_number, rows)
        fill64(&self.rows.timestamp, batch.timestamp_us, rows)
        fill8(&self.rows.protocol, POSITIONS[<uint8_t>batch.source], rows)
        fill8(&self.rows.kind, 0, rows)
        fill8(&self.rows.form, FORM_PLAIN, rows)
        self.rows.value_end.length += rows * sizeof(int32_t)
        self.rows.topic.length += rows * sizeof(uint16_t)
        self.rows.sender.length += rows * sizeof(uint16_t)
        if batch.features & (HAS_FORMS | HAS_STATUS | HAS_CREATED | HAS_HEADERS) and not self.add_features(
            batch, first_row, end_row
        ):
            self.restore_lengths(lengths)
            return -1
        self.count += rows
        return strongest

    cdef void save_lengths(self, size_t *lengths) noexcept nogil:
        cdef Column *column = <Column *>&self.rows
        cdef size_t index
        for index in range(<size_t>ROW_COLUMNS):
            lengths[index] = column[index].length

    cdef void restore_lengths(self, const size_t *lengths) noexcept nogil:
        """Remove a part of a row, so that the next row does not get it."""
        cdef Column *column = <Column *>&self.rows
        cdef size_t index
        for index in range(<size_t>ROW_COLUMNS):
            column[index].length = lengths[index]

    cdef bint add_features(self, Batch batch, uint32_t first_row, uint32_t end_row) noexcept nogil:
        """Add the columns that only some sources fill: form, status, created, headers."""
        cdef uint32_t features = batch.features
        cdef uint32_t row, place = self.count
        for row in range(first_row, end_row):
            if features & HAS_FORMS:
                self.rows.form.data[place] = batch.columns.flags[row] & FORM
            if features & HAS_STATUS and batch.columns.status[row] and not self.set_status(
                place, <int32_t>(batch.columns.status[row] - 1)
            ):
                return False
            if features & HAS_CREATED and not self.set_created(
                place, <int64_t>batch.columns.created[row] * 1000000
            ):
                return False
            if features & HAS_HEADERS and batch.columns.headers_length[row] > 2 and not self.set_headers(
                place,
                batch.data + batch.columns.headers_start[row],
                batch.columns.headers_length[row],
                batch.big,
            ):
                return False
            place += 1
        return True

    cdef bint set_headers(
        self, uint32_t place, const uint8_t *array, size_t size, bint big
    ) noexcept nogil:
        cdef const uint8_t *end = array + size
        cdef uint32_t count = load16(array, big)
        cdef uint32_t part, length
        array += 2
        for part in range(2 * count):          # key, value, key, value …
            if end - array < 4:
                return False
            length = load32(array, big)
            if <size_t>(end - array) - 4 < length:
                return False
            if part % 2 == 0:
                if not add_bytes(&self.rows.header_key, &self.rows.header_key_end, array + 4, length):
                    return False
            elif not add_bytes(&self.rows.header_value, &self.rows.header_value_end, array + 4, length):
                return False
            array += 4 + length
        return self.end_headers(place)

    cdef bint end_headers(self, uint32_t place) noexcept nogil:
        """Assign the headers added since the previous row to the row at `place`."""
        cdef size_t count = self.rows.header_key_end.length // sizeof(int32_t)
        return repeat_to(&self.rows.headers_end, place) and add_end(
            &self.rows.headers_end, <int32_t>(count - 1 if count else 0)
        )

    cdef bint set_created(self, uint32_t place, int64_t created) noexcept nogil:
        if not (
            zero_to(&self.rows.created, (place + 1) * sizeof(int64_t))
            and zero_to(&self.rows.created_valid, place + 1)
        ):
            return False
        (<int64_t *>self.rows.created.data)[place] = created
        self.rows.created_valid.data[place] = 1
        return True

    cdef bint set_status(self, uint32_t place, int32_t status) noexcept nogil:
        if not (
            zero_to(&self.rows.status, (place + 1) * sizeof(int32_t))
            and zero_to(&self.rows.status_valid, place + 1)
        ):
            return False
        (<int32_t *>self.rows.status.data)[place] = status
        self.rows.status_valid.data[place] = 1
        return True

    def append_record(
        self,
        *,
        uint32_t protocol,
        uint32_t kind,
        bytes topic not None,
        bytes value not None,
        bytes sender not None,
        uint32_t client,
        int64_t timestamp_us,
        uint32_t form=0,
        bint private=False,
        headers=(),
        bytes correlation=None,
        status=None,
        bytes key=None,
        created_us=None,
    ):
        cdef uint32_t place = self.count
        cdef uint16_t topic_slot, sender_slot
        if protocol > 0xFF or POSITIONS[protocol] == NO_POSITION:
            raise ValueError(f"no source has the number {protocol}")
        if self.full or (
            place and self.content_bytes() + <size_t>PyBytes_GET_SIZE(value) > self.bytes_max
        ):
            return False
        topic_slot = self.record_topic_slot(topic)
        sender_slot = self.sender_slot(sender)
        if not (
            add_bytes(&self.rows.value, &self.rows.value_end, start_of(value), PyBytes_GET_SIZE(value))
            and reserve(&self.rows.topic, sizeof(uint16_t))
            and reserve(&self.rows.sender, sizeof(uint16_t))
            and reserve(&self.rows.client, sizeof(uint32_t))
            and reserve(&self.rows.timestamp, sizeof(int64_t))
            and reserve(&self.rows.protocol, 1)
            and reserve(&self.rows.kind, 1)
            and reserve(&self.rows.form, 1)
        ):
            raise MemoryError
        (<uint16_t *>self.rows.topic.data)[place] = topic_slot
        (<uint16_t *>self.rows.sender.data)[place] = sender_slot
        self.rows.topic.length += sizeof(uint16_t)
        self.rows.sender.length += sizeof(uint16_t)
        fill32(&self.rows.client, client, 1)
        fill64(&self.rows.timestamp, timestamp_us, 1)
        fill8(&self.rows.protocol, POSITIONS[<uint8_t>protocol], 1)
        fill8(&self.rows.kind, <uint8_t>kind, 1)
        fill8(&self.rows.form, <uint8_t>(form | (PRIVATE if private else 0)), 1)
        for name, content in headers:
            name_bytes = name.encode()
            if not (
                add_bytes(&self.rows.header_key, &self.rows.header_key_end, start_of(name_bytes), len(name_bytes))
                and add_bytes(
                    &self.rows.header_value, &self.rows.header_value_end, start_of(content), len(content)
                )
            ):
                raise MemoryError
        if headers and not self.end_headers(place):
            raise MemoryError
        if status is not None and not self.set_status(place, status):
            raise MemoryError
        if created_us is not None and not self.set_created(place, created_us):
            raise MemoryError
        if correlation is not None:
            self.set_text(&self.rows.correlation, &self.rows.correlation_end, &self.rows.correlation_valid, place, correlation)
        if key is not None:
            self.set_text(&self.rows.key, &self.rows.key_end, &self.rows.key_valid, place, key)
        self.count += 1
        return True

    cdef int set_text(
        self, Column *column, Column *ends, Column *valid, uint32_t place, bytes text
    ) except -1:
        if not (repeat_to(ends, place) and zero_to(valid, place + 1)):
            raise MemoryError
        if not add_bytes(column, ends, start_of(text), PyBytes_GET_SIZE(text)):
            raise MemoryError
        valid.data[place] = 1
        return 0

    # --- Dictionaries ---------------------------------------------------------------------------

    cdef uint16_t record_topic_slot(self, bytes topic) except? 0xFFFF:
        """Return the slot of an append_record topic; the dictionary may hold a topic twice."""
        slot = self.record_topics.get(topic)
        if slot is None:
            slot = self.record_topics[topic] = self.next_topic_slot
            if not add_bytes(
                &self.rows.name, &self.rows.name_end, start_of(topic), PyBytes_GET_SIZE(topic)
            ):
                raise MemoryError
            self.next_topic_slot += 1
        return slot

    cdef uint16_t sender_slot(self, bytes name) except? 0xFFFF:
        slot = self.sender_slots.get(name)
        if slot is None:
            slot = self.sender_slots[name] = len(self.senders)
            self.senders.append(name)
        return slot

    # --- Finishing ------------------------------------------------------------------------------

    def finish(self, uint64_t base_offset, *, uint64_t log_id, uint32_t partition):
        """Return the fields of format.segment.Columns; views are valid until `clear`."""
        cdef bytes first = message_id(log_id, partition=partition, offset=base_offset)
        message_id(log_id, partition=partition, offset=base_offset + self.count)
        cdef bytes prefix = uuid_text(start_of(first))[:MESSAGE_ID_PREFIX]
        cdef const uint8_t *prefix_start = start_of(prefix)
        cdef uint32_t count = self.count
        cdef size_t header_count = self.rows.headers_end.length and self.rows.header_key_end.length // sizeof(int32_t) - 1
        cdef bint made
        if count <= FEW_ROWS:
            made = self.make_columns(base_offset, partition, prefix_start, header_count)
        else:
            with nogil:
                made = self.make_columns(base_offset, partition, prefix_start, header_count)
        if not made:
            raise MemoryError
        bitmap = (count + 7) // 8
        ends = 4 * (count + 1)
        key = self.rows.key_end.length
        created = self.rows.created.length
        correlation = self.rows.correlation_end.length
        status = self.rows.status.length
        headers = header_count
        buffers = [
            view(&self.made.key_bits) if key else bitmap,
            view(&self.rows.key_end) if key else ends,
            view(&self.rows.key) if key else 0,
            0, view(&self.rows.value_end), view(&self.rows.value),
            0, view(&self.rows.topic),
            0, view(&self.made.partition) if partition else 4 * count,
            0, view(&self.made.offset),
            0, view(&self.rows.timestamp),
            0, view(&self.made.timestamp_type),
            0, view(&self.rows.headers_end) if headers else ends,
            0,
            0, view(&self.rows.header_key_end) if headers else 4, view(&self.rows.header_key) if headers else 0,
            0, view(&self.rows.header_value_end) if headers else 4, view(&self.rows.header_value) if headers else 0,
            0, view(&self.rows.protocol),
            0, view(&self.rows.kind),
            0, view(&self.rows.sender),
            view(&self.made.created_bits) if created else bitmap, view(&self.rows.created) if created else 8 * count,
            view(&self.made.correlation_bits) if correlation else bitmap,
            view(&self.rows.correlation_end) if correlation else ends,
            view(&self.rows.correlation) if correlation else 0,
            view(&self.made.status_bits) if status else bitmap, view(&self.rows.status) if status else 4 * count,
            0, view(&self.made.message_id_end), view(&self.made.message_id),
            0, view(&self.rows.client),
            0, view(&self.rows.form),
        ]
        nulls = (
            count - set_bytes(&self.rows.key_valid),
            count - set_bytes(&self.rows.created_valid),
            count - set_bytes(&self.rows.correlation_valid),
            count - set_bytes(&self.rows.status_valid),
        )
        names = Names(view(&self.rows.name_end), view(&self.rows.name))
        return base_offset, count, header_count, nulls, buffers, names, self.senders

    cdef bint make_columns(
        self, uint64_t base_offset, uint32_t partition, const uint8_t *prefix, size_t header_count
    ) noexcept nogil:
        """Compute the columns that follow from others; return False if there is no memory."""
        cdef uint32_t count = self.count
        return (
            make_offsets(&self.made.offset, base_offset, count)
            and make_message_ids(
                &self.made.message_id, &self.made.message_id_end, prefix, base_offset, count
            )
            and make_constant(&self.made.timestamp_type, 1, count)
            and (partition == 0 or make_constant(&self.made.partition, partition, count))
            and (not self.rows.created.length or (
                zero_to(&self.rows.created, count * sizeof(int64_t))
                and pack_bits(&self.made.created_bits, &self.rows.created_valid, count)
            ))
            and (not self.rows.status.length or (
                zero_to(&self.rows.status, count * sizeof(int32_t))
                and pack_bits(&self.made.status_bits, &self.rows.status_valid, count)
            ))
            and (not self.rows.correlation_end.length or (
                repeat_to(&self.rows.correlation_end, count)
                and pack_bits(&self.made.correlation_bits, &self.rows.correlation_valid, count)
            ))
            and (not self.rows.key_end.length or (
                repeat_to(&self.rows.key_end, count)
                and pack_bits(&self.made.key_bits, &self.rows.key_valid, count)
            ))
            and (not header_count or repeat_to(&self.rows.headers_end, count))
        )


def follow_columns(uint64_t base_offset, uint32_t count, *, uint64_t log_id, uint32_t partition):
    cdef Column offset, ends, ids
    cdef bytes first = message_id(log_id, partition=partition, offset=base_offset)
    message_id(log_id, partition=partition, offset=base_offset + count)
    cdef bytes prefix = uuid_text(start_of(first))[:MESSAGE_ID_PREFIX]
    cdef const uint8_t *prefix_start = start_of(prefix)
    cdef bint made
    memset(&offset, 0, sizeof(Column))
    memset(&ends, 0, sizeof(Column))
    memset(&ids, 0, sizeof(Column))
    try:
        with nogil:
            made = make_offsets(&offset, base_offset, count) and make_message_ids(
                &ids, &ends, prefix_start, base_offset, count
            )
        if not made:
            raise MemoryError
        return (
            offset.data[:offset.length],
            ends.data[:ends.length],
            ids.data[:ids.length],
        )
    finally:
        free(offset.data)
        free(ends.data)
        free(ids.data)


cdef bint rows_hold(
    Batch batch, uint32_t first_row, uint32_t topic_count, bint row_senders
) noexcept nogil:
    """Return whether topics, senders, values and headers of the rows are inside their tables."""
    cdef Columns *columns = &batch.columns
    cdef uint64_t end = batch.data_length
    cdef uint32_t row, wrong = 0
    for row in range(first_row, columns.count):
        wrong |= columns.topic[row] >= topic_count
        wrong |= <uint64_t>columns.value_start[row] + columns.value_length[row] > end
    if row_senders:
        for row in range(first_row, columns.count):
            wrong |= columns.sender[row] >= batch.sender_count
    if batch.features & HAS_HEADERS:
        for row in range(first_row, columns.count):
            wrong |= (
                columns.headers_length[row] > 2
                and <uint64_t>columns.headers_start[row] + columns.headers_length[row] > end
            )
    return not wrong


# --- Columns -------------------------------------------------------------------------------------

cdef inline const uint8_t *start_of(bytes data) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(data)


cdef bytes uuid_text(const uint8_t *uuid):
    """Return the 36 characters of a UUID."""
    cdef str digits = uuid[:16].hex()
    return "-".join(
        (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    ).encode()


cdef void fill8(Column *column, uint8_t value, uint32_t count) noexcept nogil:
    memset(column.data + column.length, value, count)
    column.length += count


cdef void fill32(Column *column, uint32_t value, uint32_t count) noexcept nogil:
    cdef uint32_t *out = <uint32_t *>(column.data + column.length)
    cdef uint32_t place
    for place in range(count):
        out[place] = value
    column.length += count * sizeof(uint32_t)


cdef void fill64(Column *column, int64_t value, uint32_t count) noexcept nogil:
    cdef int64_t *out = <int64_t *>(column.data + column.length)
    cdef uint32_t place
    for place in range(count):
        out[place] = value
    column.length += count * sizeof(int64_t)


cdef bint start_ends(Column *ends) noexcept nogil:
    """Write the leading zero of an empty column of ends."""
    return ends.length > 0 or zero_to(ends, sizeof(int32_t))


cdef bint add_end(Column *ends, int32_t end) noexcept nogil:
    if not (start_ends(ends) and reserve(ends, sizeof(int32_t))):
        return False
    (<int32_t *>(ends.data + ends.length))[0] = end
    ends.length += sizeof(int32_t)
    return True


cdef bint add_bytes(Column *column, Column *ends, const uint8_t *data, size_t size) noexcept nogil:
    """Add one element to a column of byte strings; return False if Arrow's offsets cannot."""
    if size > OFFSET_MAX - column.length or not reserve(column, size):
        return False
    memcpy(column.data + column.length, data, size)
    column.length += size
    return add_end(ends, <int32_t>column.length)


cdef bint zero_to(Column *column, size_t length) noexcept nogil:
    """Fill a column with zeros up to `length` bytes."""
    if length > column.length:
        if not reserve(column, length - column.length):
            return False
        memset(column.data + column.length, 0, length - column.length)
        column.length = length
    return True


cdef bint repeat_to(Column *ends, uint32_t count) noexcept nogil:
    """Extend a column of ends to `count` elements with empty strings."""
    cdef uint32_t place
    cdef int32_t last
    if not start_ends(ends):
        return False
    place = <uint32_t>(ends.length // sizeof(int32_t))
    if place > count:
        return True
    if not reserve(ends, (count + 1 - place) * sizeof(int32_t)):
        return False
    last = (<int32_t *>ends.data)[place - 1]
    for place in range(place, count + 1):
        (<int32_t *>ends.data)[place] = last
    ends.length = (count + 1) * sizeof(int32_t)
    return True


cdef bint pack_bits(Column *bits, Column *valid, uint32_t count) noexcept nogil:
    """Pack one byte per row into Arrow's validity bitmap; rows beyond `valid` are null."""
    cdef uint32_t place
    bits.length = 0
    if not zero_to(bits, (count + 7) // 8):
        return False
    for place in range(min(<uint32_t>valid.length, count)):
        bits.data[place >> 3] |= valid.data[place] << (place & 7)
    return True


cdef uint32_t set_bytes(Column *valid) noexcept:
    cdef uint32_t count = 0
    cdef size_t place
    for place in range(valid.length):
        count += valid.data[place]
    return count


cdef bint make_offsets(Column *column, uint64_t base_offset, uint32_t count) noexcept nogil:
    cdef uint32_t row
    column.length = 0
    if not reserve(column, count * sizeof(int64_t)):
        return False
    for row in range(count):
        (<uint64_t *>column.data)[row] = base_offset + row
    column.length = count * sizeof(int64_t)
    return True


cdef bint make_constant(Column *column, uint32_t value, uint32_t count) noexcept nogil:
    column.length = 0
    if not reserve(column, count * sizeof(uint32_t)):
        return False
    fill32(column, value, count)
    return True


cdef bint make_message_ids(
    Column *column, Column *ends, const uint8_t *prefix, uint64_t base_offset, uint32_t count
) noexcept nogil:
    """Write UUIDs: 19 shared characters, then ``OOOO-OOOOOOOOOOOO``, the offset in hex."""
    cdef uint32_t row, byte
    cdef uint64_t number
    cdef uint8_t *out
    cdef int32_t *end
    column.length = ends.length = 0
    if not (
        reserve(column, <size_t>count * MESSAGE_ID) and reserve(ends, (count + 1) * sizeof(int32_t))
    ):
        return False
    out = column.data
    end = <int32_t *>ends.data
    end[0] = 0
    for row in range(count):
        number = UUID_VARIANT | (base_offset + row)
        memcpy(out, prefix, MESSAGE_ID_PREFIX)
        memcpy(out + 19, &HEX[2 * (number >> 56)], 2)
        memcpy(out + 21, &HEX[2 * (number >> 48 & 0xFF)], 2)
        out[23] = c"-"
        for byte in range(6):
            memcpy(out + 24 + 2 * byte, &HEX[2 * (number >> (40 - 8 * byte) & 0xFF)], 2)
        out += MESSAGE_ID
        end[row + 1] = <int32_t>((row + 1) * MESSAGE_ID)
    column.length = <size_t>count * MESSAGE_ID
    ends.length = (count + 1) * sizeof(int32_t)
    return True
