"""Messages of the log, read back into a Batch.

A group of the log is an Arrow record batch with the dictionaries of its topics and senders. Its
columns are read in place. The batch gets the columns that encoders need: topic id, position and size
of the value, and flags. Every length, offset and index is checked here, so that encoders need not
check. Bytes that are not a group are rejected, and no read goes beyond the buffer.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from penstock._kernels.batch cimport (
    FORM_BINARY,
    FORM_EMPTY,
    FORM_MESSAGEPACK,
    FORM_PLAIN,
    FORM_TEXT,
    FRAME_OVERHEAD,
    HAS_CREATED,
    HAS_SENDERS,
    HAS_STATUS,
    HIDDEN,
    STORED,
    UUID_NAME,
    Batch,
    Columns,
    StoredColumns,
    features_of,
    reserve,
)
from penstock._kernels.frame cimport load16, load32, load64
from penstock._kernels.names cimport names_find
from penstock._kernels.row_buffers cimport (
    BUFFER_COUNT,
    CLIENT,
    CREATED,
    CREATED_VALIDITY,
    FORMS,
    HEADER_KEY_DATA,
    HEADER_KEYS,
    HEADER_VALUE_DATA,
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
)
from penstock._kernels.topics cimport TopicTable

from penstock.errors import InvalidTopicName
from penstock.limits import BATCH_ROWS_MAX
from penstock.model import Form, Kind
from penstock.protocols import SOURCES

cdef enum:
    DICTIONARY_ENTRIES_MAX = 65536 # the range of a 16-bit index
    PRIVATE = 0x80                 # in `form`
    HEADERS_MAX = 0xFFFF           # header arrays count in 16 bits
    STATUS_MAX = 0xFFFF
    UUID_TEXT = 36

BUFFERS = BUFFER_COUNT

if (
    Form.PLAIN != FORM_PLAIN or Form.EMPTY != FORM_EMPTY or Form.TEXT != FORM_TEXT
    or Form.BINARY != FORM_BINARY or Form.MESSAGEPACK != FORM_MESSAGEPACK
    or max(Form) != FORM_MESSAGEPACK
):
    raise ImportError("model.Form has other numbers than the kernel")


cdef class SegmentWords:
    cdef uint32_t protocol_count
    cdef uint32_t kind_count
    cdef uint8_t numbers[256]      # protocol number at each position; 0 if unknown
    cdef uint32_t features[256]    # of its rows
    cdef uint8_t hidden[256]       # whether rows of the kind at each position are never delivered

    def __cinit__(self, protocols, kinds):
        if len(protocols) > 256 or len(kinds) > 256:
            raise ValueError("a dictionary has more entries than indices of 8 bits")
        self.protocol_count = len(protocols)
        self.kind_count = len(kinds)
        for position, label in enumerate(protocols):
            source = SOURCES.get(label)
            if source is not None:
                self.numbers[<uint8_t>position] = source.number
                self.features[<uint8_t>position] = features_of(source.carries)
        for position, label in enumerate(kinds):
            self.hidden[<uint8_t>position] = label != Kind.PUBLISH.label


cdef class Loading:
    """The state of loading one group into a batch, and the memory for it."""

    cdef Batch batch
    cdef TopicTable topics
    cdef SegmentWords words
    cdef uint32_t count
    cdef bint published            # rows that are published now, not history
    cdef Region columns[BUFFER_COUNT]
    cdef Dictionary topic_names
    cdef Dictionary sender_names
    cdef uint32_t *topic_ids       # of each name, plus one; 0 if unknown
    cdef uint32_t *topic_lengths
    cdef uint8_t *topic_used       # whether a row that is not hidden has it
    cdef uint8_t *sender_names_read    # 1: read, 2: a uuid
    cdef const uint32_t[::1] floors    # by topic: rows before it are hidden
    cdef bint has_floors

    def __dealloc__(self):
        free(self.topic_ids)
        free(self.topic_lengths)
        free(self.topic_used)
        free(self.sender_names_read)

    cdef Region region(self, object start, object length) except *:
        """Return a part of the data; raise ValueError if it extends beyond the data."""
        cdef Region region
        if not 0 <= start <= start + length <= self.batch.data_length:
            raise ValueError(f"{length} bytes at {start} of {self.batch.data_length}")
        region.start = self.batch.data + <size_t>start
        region.length = <size_t>length
        return region

    cdef int prepare(self, object layout, object topic_names, object sender_names) except -1:
        """Read the positions of all parts, and allocate the memory for the rows."""
        cdef StoredColumns *stored = &self.batch.stored
        if len(layout) != 2 * BUFFER_COUNT or len(topic_names) != 4 or len(sender_names) != 4:
            raise ValueError(
                f"{len(layout)} numbers for {BUFFER_COUNT} buffers,"
                f" {len(topic_names)} and {len(sender_names)} for dictionaries"
            )
        for buffer in range(BUFFER_COUNT):
            self.columns[buffer] = self.region(layout[2 * buffer], layout[2 * buffer + 1])
        self.topic_names = self.dictionary(topic_names)
        self.sender_names = self.dictionary(sender_names)
        stored.timestamp = self.columns[TIMESTAMP].start
        stored.protocol = self.columns[PROTOCOL].start
        memcpy(stored.numbers, self.words.numbers, sizeof(stored.numbers))
        stored.client = self.columns[CLIENT].start
        stored.headers = self.columns[HEADERS].start
        stored.header_keys = self.columns[HEADER_KEYS].start
        stored.header_key_data = self.columns[HEADER_KEY_DATA].start
        stored.header_values = self.columns[HEADER_VALUES].start
        stored.header_value_data = self.columns[HEADER_VALUE_DATA].start
        self.topic_ids = <uint32_t *>calloc(self.topic_names.entries + 1, sizeof(uint32_t))
        self.topic_lengths = <uint32_t *>calloc(self.topic_names.entries + 1, sizeof(uint32_t))
        self.topic_used = <uint8_t *>calloc(self.topic_names.entries + 1, 1)
        self.sender_names_read = <uint8_t *>calloc(self.sender_names.entries + 1, 1)
        if (
            not self.topic_ids
            or not self.topic_lengths
            or not self.topic_used
            or not self.sender_names_read
            or not reserve(&self.batch.columns, self.count)
            or not reserve_uuids(stored, self.sender_names.entries)
        ):
            raise MemoryError
        return 0

    cdef Dictionary dictionary(self, object parts) except *:
        cdef Dictionary dictionary
        offsets_start, offsets_length, data_start, data_length = parts
        dictionary.offsets = self.region(offsets_start, offsets_length)
        dictionary.data = self.region(data_start, data_length)
        dictionary.entries = DICTIONARY_ENTRIES_MAX
        if dictionary.offsets.length < 4 * (DICTIONARY_ENTRIES_MAX + 1):
            dictionary.entries = max(<uint32_t>dictionary.offsets.length // 4, 1) - 1
        return dictionary

    cdef int learn_topics(self) except -1:
        """Intern the new names of topics that can be delivered; history leaves removed ones out."""
        cdef uint32_t entry
        cdef Region name
        for entry in range(self.topic_names.entries):
            if (
                self.topic_used[entry]
                and not self.topic_ids[entry]
                and entry_at(&self.topic_names, entry, &name)
            ):
                text = name.start[:name.length].decode()
                try:
                    if self.published:
                        self.topic_ids[entry] = self.topics.intern(text) + 1
                    else:
                        identifier = self.topics.intern_stored(text)
                        if identifier is not None:
                            self.topic_ids[entry] = identifier + 1
                except InvalidTopicName as error:
                    raise ValueError(str(error)) from None
        return 0


def load(
    Batch batch not None,
    TopicTable topics not None,
    object data,
    object layout,
    object topic_dictionary,
    object sender_dictionary,
    SegmentWords words not None,
    *,
    object count,
    bint published=False,
    object floors=None,
):
    cdef Loading loading = Loading()
    cdef const char *fault
    if not 0 <= count <= BATCH_ROWS_MAX:
        raise ValueError(f"{count} rows, allowed are 0 to {BATCH_ROWS_MAX}")
    batch.hold(data)
    batch.users = -1
    try:
        loading.batch = batch
        loading.topics = topics
        loading.words = words
        loading.count = count
        loading.published = published
        loading.prepare(layout, topic_dictionary, sender_dictionary)
        if floors is not None:
            loading.floors = floors
            loading.has_floors = True
            if <uint32_t>loading.floors.shape[0] < loading.topic_names.entries:
                raise ValueError(f"{len(floors)} floors for {loading.topic_names.entries} topics")
        with nogil:
            fault = read_rows(loading)
        if fault:
            raise ValueError(fault.decode())
        loading.learn_topics()
        with nogil:
            fill_topics(loading)
        batch.columns.count = loading.count
        batch.source = STORED
        batch.big = True
    finally:
        batch.finish()
        if batch.source != STORED:
            batch.clear()


cdef bint reserve_uuids(StoredColumns *stored, size_t capacity) noexcept nogil:
    cdef uint8_t *wider
    if capacity <= stored.sender_uuids_capacity:
        return True
    wider = <uint8_t *>realloc(stored.sender_uuids, 16 * capacity)
    if not wider:
        return False
    stored.sender_uuids = wider
    stored.sender_uuids_capacity = capacity
    return True


cdef const char *read_rows(Loading loading) noexcept nogil:
    """Check all columns and fill those of the batch but `topic`; return an error text, or NULL."""
    cdef const char *fault = check_lengths(loading.columns, loading.count)
    if not loading.count:
        return NULL
    if not fault:
        fault = read_values(loading)
    if not fault:
        fault = read_flags(loading)
    if not fault:
        fault = read_topics(loading)
    if not fault:
        fault = read_headers(loading)
    if not fault:
        fault = read_senders(loading)
    if not fault:
        fault = read_times(loading)
    if not fault:
        fault = read_status(loading)
    return fault


cdef const char *read_values(Loading loading) noexcept nogil:
    cdef const uint8_t *offsets = loading.columns[VALUE_OFFSETS].start
    cdef uint32_t *value_start = loading.batch.columns.value_start
    cdef uint32_t *value_length = loading.batch.columns.value_length
    cdef uint32_t base = <uint32_t>(loading.columns[VALUE_DATA].start - loading.batch.data)
    cdef uint32_t count = loading.count
    cdef uint32_t start, end, row, wrong = 0
    for row in range(count):
        start = load32(offsets + 4 * <size_t>row, False)
        end = load32(offsets + 4 * <size_t>row + 4, False)
        wrong |= start > end
        value_start[row] = base + start
        value_length[row] = end - start
    # Ends never decrease, so checking the last one is enough.
    if wrong or load32(offsets + 4 * <size_t>count, False) > loading.columns[VALUE_DATA].length:
        return b"a value is not inside the group"
    return NULL


cdef const char *read_flags(Loading loading) noexcept nogil:
    cdef const uint8_t *forms = loading.columns[FORMS].start
    cdef const uint8_t *kinds = loading.columns[KIND].start
    cdef const uint8_t *protocols = loading.columns[PROTOCOL].start
    cdef const uint8_t *hidden = loading.words.hidden
    cdef uint32_t protocol_count = loading.words.protocol_count
    cdef uint32_t kind_count = loading.words.kind_count
    cdef uint8_t *flags = loading.batch.columns.flags
    cdef uint32_t count = loading.count
    cdef uint32_t row
    cdef uint8_t form, wrong = 0
    for row in range(count):
        form = forms[row] & ~PRIVATE
        wrong |= (form > FORM_MESSAGEPACK) | (kinds[row] >= kind_count) | (protocols[row] >= protocol_count)
        flags[row] = form | (HIDDEN if (forms[row] & PRIVATE) | hidden[kinds[row]] else 0)
    if wrong:
        return b"a form, kind or protocol does not exist"
    return NULL


cdef const char *read_topics(Loading loading) noexcept nogil:
    """Look up the topics, and mark those that need an id."""
    cdef const uint8_t *topics = loading.columns[TOPIC].start
    cdef uint8_t *flags = loading.batch.columns.flags
    cdef uint8_t *used = loading.topic_used
    cdef uint32_t entries = loading.topic_names.entries
    cdef uint32_t count = loading.count
    cdef uint32_t row, entry
    cdef Region name
    for row in range(count):
        entry = load16(topics + 2 * <size_t>row, False)
        if entry >= entries:
            return b"a topic is not in the dictionary"
        if loading.has_floors and row < loading.floors[entry]:
            flags[row] |= HIDDEN
        if not used[entry] and not flags[row] & HIDDEN:
            used[entry] = 1
    for entry in range(entries):
        if used[entry]:
            if not entry_at(&loading.topic_names, entry, &name):
                return b"a topic's name is not inside the group"
            loading.topic_ids[entry] = names_find(&loading.topics.by_name, name.start, name.length)
            loading.topic_lengths[entry] = <uint32_t>name.length
    return NULL


cdef void fill_topics(Loading loading) noexcept nogil:
    """Set topic id and frame size bound of each row, once all topics are known."""
    cdef const uint8_t *topics = loading.columns[TOPIC].start
    cdef const uint32_t *topic_ids = loading.topic_ids
    cdef const uint32_t *topic_lengths = loading.topic_lengths
    cdef Columns columns = loading.batch.columns
    cdef uint32_t count = loading.count
    cdef uint32_t row, entry
    cdef uint64_t size
    for row in range(count):
        entry = load16(topics + 2 * <size_t>row, False)
        columns.topic[row] = topic_ids[entry] - 1      # 0 wraps around to 0xFFFFFFFF: unknown
        if not topic_ids[entry]:
            columns.flags[row] |= HIDDEN
        size = <uint64_t>columns.value_length[row] + topic_lengths[entry] + FRAME_OVERHEAD
        size += columns.headers_length[row]
        columns.frame_length[row] = <uint32_t>min(size, <uint64_t>0xFFFFFFFF)


cdef const char *read_headers(Loading loading) noexcept nogil:
    """Check the headers, and set the size of each row's headers in a frame."""
    cdef Region *columns = loading.columns
    cdef const uint8_t *rows = columns[HEADERS].start
    cdef const uint8_t *keys = columns[HEADER_KEYS].start
    cdef const uint8_t *values = columns[HEADER_VALUES].start
    cdef uint32_t *headers_length = loading.batch.columns.headers_length
    cdef uint32_t count = loading.count
    cdef size_t first = load32(rows, False), last = load32(rows + 4 * <size_t>count, False)
    cdef size_t start, end
    cdef uint64_t size
    cdef uint32_t row, wrong = 0
    for row in range(count):
        start = load32(rows + 4 * <size_t>row, False)
        end = load32(rows + 4 * <size_t>row + 4, False)
        wrong |= (start > end) | (end - start > HEADERS_MAX)
    if wrong:
        return b"the headers of a row end before they begin, or are too many"
    memset(headers_length, 0, count * sizeof(uint32_t))
    if first == last:
        return NULL
    if (
        columns[HEADER_KEYS].length < 4 * (last + 1)
        or columns[HEADER_VALUES].length < 4 * (last + 1)
        or not offsets_hold(keys, first, last, columns[HEADER_KEY_DATA].length)
        or not offsets_hold(values, first, last, columns[HEADER_VALUE_DATA].length)
    ):
        return b"a header is not inside the group"
    for row in range(count):
        start = load32(rows + 4 * <size_t>row, False)
        end = load32(rows + 4 * <size_t>row + 4, False)
        size = 8 * (end - start)
        size += load32(keys + 4 * end, False) - load32(keys + 4 * start, False)
        size += load32(values + 4 * end, False) - load32(values + 4 * start, False)
        headers_length[row] = <uint32_t>min(size, <uint64_t>0xFFFFFFFF)
    return NULL


cdef bint offsets_hold(
    const uint8_t *offsets, size_t first, size_t last, size_t length
) noexcept nogil:
    """Return whether the offsets of some entries never decrease and end inside their data."""
    cdef size_t entry
    cdef uint32_t wrong = 0
    for entry in range(first, last):
        wrong |= load32(offsets + 4 * entry, False) > load32(offsets + 4 * entry + 4, False)
    return not wrong and load32(offsets + 4 * last, False) <= length


cdef const char *read_senders(Loading loading) noexcept nogil:
    """Read the sender names that are uuids; other senders are identified by number."""
    cdef const uint8_t *senders = loading.columns[SENDER].start
    cdef const uint8_t *protocols = loading.columns[PROTOCOL].start
    cdef const uint32_t *features = loading.words.features
    cdef uint8_t *read = loading.sender_names_read
    cdef uint8_t *flags = loading.batch.columns.flags
    cdef uint8_t *uuids = loading.batch.stored.sender_uuids
    cdef uint16_t *sender = loading.batch.columns.sender
    cdef uint32_t entries = loading.sender_names.entries
    cdef uint32_t count = loading.count
    cdef uint32_t row, entry
    cdef Region name
    for row in range(count):
        if not features[protocols[row]] & HAS_SENDERS:
            continue
        entry = load16(senders + 2 * <size_t>row, False)
        if entry >= entries:
            return b"a sender is not in the dictionary"
        if not read[entry]:
            if not entry_at(&loading.sender_names, entry, &name):
                return b"a sender's name is not inside the group"
            read[entry] = 2 if parse_uuid(&name, uuids + 16 * <size_t>entry) else 1
        sender[row] = <uint16_t>entry
        if read[entry] == 2:
            flags[row] |= UUID_NAME
    return NULL


cdef bint parse_uuid(Region *text, uint8_t *uuid) noexcept nogil:
    """Read a uuid in its usual form, 8-4-4-4-12; return whether it is one."""
    cdef uint32_t digits = 0
    cdef int at, value
    if text.length != UUID_TEXT:
        return False
    for at in range(UUID_TEXT):
        if at == 8 or at == 13 or at == 18 or at == 23:
            if text.start[at] != c"-":
                return False
            continue
        value = hex_digit(text.start[at])
        if value < 0:
            return False
        uuid[digits // 2] = <uint8_t>(value if digits % 2 == 0 else uuid[digits // 2] << 4 | value)
        digits += 1
    return True


cdef inline int hex_digit(uint8_t character) noexcept nogil:
    if c"0" <= character <= c"9":
        return character - c"0"
    character |= 0x20
    return character - c"a" + 10 if c"a" <= character <= c"f" else -1


cdef const char *read_times(Loading loading) noexcept nogil:
    """Set the created time of messages: the sender's if there is one, else the broker's."""
    cdef const uint8_t *timestamps = loading.columns[TIMESTAMP].start
    cdef const uint8_t *created = loading.columns[CREATED].start
    cdef const uint8_t *protocols = loading.columns[PROTOCOL].start
    cdef const uint32_t *features = loading.words.features
    cdef uint32_t *seconds = loading.batch.columns.created
    cdef Region validity = loading.columns[CREATED_VALIDITY]
    cdef uint32_t count = loading.count
    cdef int64_t time, last_time = 0
    cdef uint32_t row, last_seconds = 0
    for row in range(count):
        time = <int64_t>load64(timestamps + 8 * <size_t>row, False)
        if features[protocols[row]] & HAS_CREATED and is_valid(&validity, row):
            time = <int64_t>load64(created + 8 * <size_t>row, False)
        if time != last_time:
            last_time = time
            last_seconds = <uint32_t>(time // 1000000)
        seconds[row] = last_seconds
    return NULL


cdef const char *read_status(Loading loading) noexcept nogil:
    cdef const uint8_t *statuses = loading.columns[STATUS].start
    cdef const uint8_t *protocols = loading.columns[PROTOCOL].start
    cdef const uint32_t *features = loading.words.features
    cdef uint32_t *status = loading.batch.columns.status
    cdef Region validity = loading.columns[STATUS_VALIDITY]
    cdef uint32_t count = loading.count
    cdef uint32_t row, value
    for row in range(count):
        status[row] = 0
        if features[protocols[row]] & HAS_STATUS and is_valid(&validity, row):
            value = load32(statuses + 4 * <size_t>row, False)
            if value > STATUS_MAX:
                return b"a status is more than 65,535"
            status[row] = value + 1
    return NULL
