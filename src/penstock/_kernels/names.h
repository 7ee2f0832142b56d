/* A table from byte strings to numbers: open addressing over entries that never move.
 *
 *     slot    63        32 31      0      entry  0       8        12       16         64
 *             ┌───────────┬─────────┐            ┌───────┬────────┬────────┬──────────┐
 *             │ tag       │ place+1 │            │ bytes │ length │ number │ start    │
 *             └───────────┴─────────┘            └───────┴────────┴────────┴──────────┘
 *
 * A slot is one word: the upper half of the hash, and the place of an entry; 0 is an empty slot. An
 * entry is a line of the processor's cache and has a copy of a name of up to NAME_SHORT bytes. So a
 * look-up among many names waits for memory twice, and a miss mostly once.
 *
 * One writer, any number of readers that hold no lock: an entry is complete before its slot is
 * published, and slots that were outgrown stay until a removal or the end of the table, since a
 * reader may still look at them. A removal must not run beside a reader. The bytes of a name belong
 * to the caller and must stay until the name is removed.
 */
#ifndef PENSTOCK_NAMES_H
#define PENSTOCK_NAMES_H

#include <stdlib.h>
#include <sys/mman.h>

#include "frame.h"

#define NAME_REMOVED UINT32_MAX /* the place in a slot whose name was removed */
#define NAME_SHORT 48

#define NAMES_CHUNK_FIRST 16
#define NAMES_CHUNKS 24         /* each twice as large as the one before */
#define NAMES_HUGE_PAGE 2097152 /* bytes */

#define NAMES_CACHED 4096 /* a table of fewer names stays in the processor's cache */
#define NAMES_AHEAD 32    /* frames; a power of two */

typedef struct {
    const uint8_t *bytes;
    uint32_t length;
    uint32_t number; /* in a free entry: the next free place plus one, or 0 */
    uint8_t start[NAME_SHORT];
} NameEntry;

typedef struct NameSlots {
    uint64_t mask;
    struct NameSlots *outgrown;
    uint64_t *slot;
} NameSlots;

typedef struct {
    NameSlots *slots;
    uint64_t seed; /* random, so that clients cannot choose names that collide */
    uint32_t count;
    uint32_t removed; /* slots of removed names, which look-ups pass over */
    uint32_t entries; /* places given, those of free entries included */
    uint32_t free;    /* the first free place plus one, or 0 */
    NameEntry *chunk[NAMES_CHUNKS];
} Names;

typedef struct {
    uint64_t hash[NAMES_AHEAD]; /* of the names that were looked at ahead */
    const uint8_t *name[NAMES_AHEAD];
    uint32_t length[NAMES_AHEAD];
    uint32_t count;
} NamesAhead;

/* Returns memory for an array that is read in no order. A large one gets huge pages where the
 * system has them: otherwise most reads wait for the address of a page as well. */
static inline void *names_memory(size_t size) {
    size_t huge = (size_t)NAMES_HUGE_PAGE;
    size_t alignment = size % huge ? sizeof(NameEntry) : huge;
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, size))
        return NULL;
    if (alignment == huge)
        (void)madvise(memory, size, MADV_HUGEPAGE); /* advice: without it, look-ups are slower */
    return memory;
}

static inline NameSlots *names_slots(uint64_t size, NameSlots *outgrown) {
    NameSlots *slots = (NameSlots *)malloc(sizeof(NameSlots));
    if (!slots)
        return NULL;
    slots->mask = size - 1;
    slots->outgrown = outgrown;
    slots->slot = (uint64_t *)names_memory(size * sizeof(uint64_t));
    if (!slots->slot) {
        free(slots);
        return NULL;
    }
    memset(slots->slot, 0, size * sizeof(uint64_t));
    return slots;
}

static inline void names_free_slots(NameSlots *slots) {
    free(slots->slot);
    free(slots);
}

/* Returns 0 if memory is short. */
static inline int names_open(Names *names, uint64_t seed) {
    memset(names, 0, sizeof(*names));
    names->seed = seed;
    names->slots = names_slots(64, NULL);
    return names->slots != NULL;
}

static inline void names_close(Names *names) {
    while (names->slots) {
        NameSlots *slots = names->slots;
        names->slots = slots->outgrown;
        names_free_slots(slots);
    }
    for (int chunk = 0; chunk < NAMES_CHUNKS; chunk++) {
        free(names->chunk[chunk]);
        names->chunk[chunk] = NULL;
    }
}

/* Chunks have 16, 32, 64... entries: place 0 is the first of chunk 0, place 16 that of chunk 1. */
static inline int names_chunk_of(uint32_t place) {
    return 59 - __builtin_clzll((uint64_t)place + NAMES_CHUNK_FIRST);
}

static inline NameEntry *names_entry(const Names *names, uint32_t place) {
    int chunk = names_chunk_of(place);
    uint64_t first = ((uint64_t)NAMES_CHUNK_FIRST << chunk) - NAMES_CHUNK_FIRST;
    return &names->chunk[chunk][place - first];
}

static inline int names_same(const NameEntry *entry, const uint8_t *bytes, size_t length) {
    return entry->length == length &&
           same_bytes(length <= NAME_SHORT ? entry->start : entry->bytes, bytes, length);
}

static inline uint32_t names_find_hashed(const Names *names, const uint8_t *bytes, size_t length,
                                         uint64_t hash) {
    const NameSlots *slots = __atomic_load_n(&names->slots, __ATOMIC_ACQUIRE);
    for (uint64_t at = hash & slots->mask;; at = (at + 1) & slots->mask) {
        uint64_t slot = __atomic_load_n(&slots->slot[at], __ATOMIC_ACQUIRE);
        if (!slot)
            return 0;
        if (slot >> 32 != hash >> 32 || (uint32_t)slot == NAME_REMOVED)
            continue;
        const NameEntry *entry = names_entry(names, (uint32_t)slot - 1);
        if (names_same(entry, bytes, length))
            return entry->number;
    }
}

/* Returns the number of a name, or 0. */
static inline uint32_t names_find(const Names *names, const uint8_t *bytes, size_t length) {
    return names_find_hashed(names, bytes, length, hash_bytes(bytes, length, names->seed));
}

/* The same for a name that may have been looked at ahead: then its hash is known. */
static inline uint32_t names_find_ahead(const Names *names, const uint8_t *bytes, size_t length,
                                        const NamesAhead *ahead) {
    uint32_t oldest = ahead->count % NAMES_AHEAD;
    if (ahead->name[oldest] == bytes && ahead->length[oldest] == length)
        return names_find_hashed(names, bytes, length, ahead->hash[oldest]);
    return names_find(names, bytes, length);
}

/* Fetches the entry that a look-up of this hash will most likely read. */
static inline void names_fetch_entry(const Names *names, const NameSlots *slots, uint64_t hash) {
    for (uint64_t at = hash & slots->mask;; at = (at + 1) & slots->mask) {
        uint64_t slot = __atomic_load_n(&slots->slot[at], __ATOMIC_ACQUIRE);
        if (!slot)
            return;
        if (slot >> 32 == hash >> 32 && (uint32_t)slot != NAME_REMOVED) {
            __builtin_prefetch(names_entry(names, (uint32_t)slot - 1));
            return;
        }
    }
}

/* Fetches what look-ups of later frames will read: the slot for the name NAMES_AHEAD frames on, and
 * the entry for the one half as far, whose slot is there by then. It is a guess that frames are
 * `step` bytes each and their names as long as this one; a wrong one costs a little time. A large
 * table is not in the processor's cache: without this, each look-up waits for memory twice. */
static inline void names_look_ahead(const Names *names, const uint8_t *name, size_t length,
                                    size_t step, const uint8_t *end, NamesAhead *ahead) {
    if (names->count < NAMES_CACHED || (size_t)(end - name) < NAMES_AHEAD * step + length)
        return;
    const NameSlots *slots = __atomic_load_n(&names->slots, __ATOMIC_ACQUIRE);
    uint64_t hash = hash_bytes(name + NAMES_AHEAD * step, length, names->seed);
    __builtin_prefetch(&slots->slot[hash & slots->mask]);
    if (ahead->count >= NAMES_AHEAD / 2)
        names_fetch_entry(names, slots, ahead->hash[(ahead->count - NAMES_AHEAD / 2) % NAMES_AHEAD]);
    uint32_t newest = ahead->count++ % NAMES_AHEAD;
    ahead->hash[newest] = hash;
    ahead->name[newest] = name + NAMES_AHEAD * step;
    ahead->length[newest] = (uint32_t)length;
}

static inline void names_publish(NameSlots *slots, uint64_t hash, uint32_t place) {
    uint64_t at = hash & slots->mask;
    while (slots->slot[at])
        at = (at + 1) & slots->mask;
    __atomic_store_n(&slots->slot[at], (hash >> 32 << 32) | (place + 1), __ATOMIC_RELEASE);
}

/* Returns the place of a free entry, or NAME_REMOVED if memory is short. */
static inline uint32_t names_take_entry(Names *names) {
    if (names->free) {
        uint32_t place = names->free - 1;
        names->free = names_entry(names, place)->number;
        return place;
    }
    int chunk = names_chunk_of(names->entries);
    if (chunk >= NAMES_CHUNKS)
        return NAME_REMOVED;
    if (!names->chunk[chunk]) {
        size_t size = sizeof(NameEntry) * ((size_t)NAMES_CHUNK_FIRST << chunk);
        names->chunk[chunk] = (NameEntry *)names_memory(size);
        if (!names->chunk[chunk])
            return NAME_REMOVED;
    }
    return names->entries++;
}

/* Replaces the slots by new ones without removed names; returns 0 if memory is short. */
static inline int names_widen(Names *names) {
    NameSlots *slots = names->slots;
    /* Where most slots in use are of removed names, the same size is enough. */
    uint64_t factor = names->count >= (slots->mask + 1) / 4 ? 2 : 1;
    NameSlots *wider = names_slots((slots->mask + 1) * factor, slots);
    if (!wider)
        return 0;
    for (uint64_t at = 0; at <= slots->mask; at++) {
        uint32_t place = (uint32_t)slots->slot[at];
        if (!place || place == NAME_REMOVED)
            continue;
        const NameEntry *entry = names_entry(names, place - 1);
        names_publish(wider, hash_bytes(entry->bytes, entry->length, names->seed), place - 1);
    }
    __atomic_store_n(&names->slots, wider, __ATOMIC_RELEASE);
    names->removed = 0;
    return 1;
}

/* Adds a name that is not there yet; returns 0 if memory is short. */
static inline int names_add(Names *names, const uint8_t *bytes, uint32_t length, uint32_t number) {
    if (names->count + names->removed >= (names->slots->mask + 1) / 2 && !names_widen(names))
        return 0;
    uint32_t place = names_take_entry(names);
    if (place == NAME_REMOVED)
        return 0;
    NameEntry *entry = names_entry(names, place);
    entry->bytes = bytes;
    entry->length = length;
    entry->number = number;
    memcpy(entry->start, bytes, length < NAME_SHORT ? length : NAME_SHORT);
    names_publish(names->slots, hash_bytes(bytes, length, names->seed), place);
    names->count++;
    return 1;
}

/* Removes a name that has this number; returns 0 if there is none. No reader may run meanwhile. */
static inline int names_remove(Names *names, const uint8_t *bytes, uint32_t length,
                               uint32_t number) {
    NameSlots *slots = names->slots;
    while (slots->outgrown) {
        NameSlots *outgrown = slots->outgrown;
        slots->outgrown = outgrown->outgrown;
        names_free_slots(outgrown);
    }
    uint64_t hash = hash_bytes(bytes, length, names->seed);
    for (uint64_t at = hash & slots->mask; slots->slot[at]; at = (at + 1) & slots->mask) {
        uint32_t place = (uint32_t)slots->slot[at];
        if (place == NAME_REMOVED)
            continue;
        NameEntry *entry = names_entry(names, place - 1);
        if (entry->number == number && names_same(entry, bytes, length)) {
            slots->slot[at] = NAME_REMOVED;
            entry->bytes = NULL;
            entry->length = 0;
            entry->number = names->free;
            names->free = place;
            names->count--;
            names->removed++;
            return 1;
        }
    }
    return 0;
}

#endif
