/* A table from byte strings to numbers: open addressing.
 *
 * One writer, any number of readers that hold no lock: an entry is complete before its number is
 * published, and slots that were outgrown stay until a removal or the end of the table, since a
 * reader may still look at them. A removal must not run beside a reader. The bytes of a name belong
 * to the caller and must stay until the name is removed.
 */
#ifndef PENSTOCK_NAMES_H
#define PENSTOCK_NAMES_H

#include <stdlib.h>

#include "frame.h"

#define NAME_REMOVED UINT32_MAX /* the length of a slot whose name was removed: no name has it */

#define NAMES_CACHED 4096 /* a table of fewer names stays in the processor's cache */
#define NAMES_AHEAD 32    /* frames; a power of two */

typedef struct {
    const uint8_t *bytes;
    uint32_t length;
    uint32_t tag;    /* upper half of the hash: most mismatches stop here */
    uint32_t number; /* 0 is an empty slot */
} NameSlot;

typedef struct NameSlots {
    uint64_t mask;
    struct NameSlots *outgrown;
    NameSlot slot[];
} NameSlots;

typedef struct {
    NameSlots *slots;
    uint64_t seed; /* random, so that clients cannot choose names that collide */
    uint32_t count;
    uint32_t removed; /* slots of removed names, which look-ups pass over */
} Names;

typedef struct {
    uint64_t hash[NAMES_AHEAD]; /* of the names that were looked at ahead */
    const uint8_t *name[NAMES_AHEAD];
    uint32_t length[NAMES_AHEAD];
    uint32_t count;
} NamesAhead;

static inline NameSlots *names_slots(uint64_t size, NameSlots *outgrown) {
    NameSlots *slots = (NameSlots *)calloc(1, sizeof(NameSlots) + size * sizeof(NameSlot));
    if (slots) {
        slots->mask = size - 1;
        slots->outgrown = outgrown;
    }
    return slots;
}

/* Returns 0 if memory is short. */
static inline int names_open(Names *names, uint64_t seed) {
    names->seed = seed;
    names->count = names->removed = 0;
    names->slots = names_slots(64, NULL);
    return names->slots != NULL;
}

static inline void names_close(Names *names) {
    while (names->slots) {
        NameSlots *slots = names->slots;
        names->slots = slots->outgrown;
        free(slots);
    }
}

static inline uint32_t names_find_hashed(const Names *names, const uint8_t *bytes, size_t length,
                                         uint64_t hash) {
    const NameSlots *slots = __atomic_load_n(&names->slots, __ATOMIC_ACQUIRE);
    for (uint64_t place = hash & slots->mask;; place = (place + 1) & slots->mask) {
        const NameSlot *slot = &slots->slot[place];
        uint32_t number = __atomic_load_n(&slot->number, __ATOMIC_ACQUIRE);
        if (!number)
            return 0;
        if (slot->tag == (uint32_t)(hash >> 32) && slot->length == length &&
            same_bytes(slot->bytes, bytes, length))
            return number;
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

/* Fetches what look-ups of later frames will read: the slot for the name NAMES_AHEAD frames on, and
 * the bytes for the one half as far, whose slot is there by then. It is a guess that frames are
 * `step` bytes each and their names as long as this one; a wrong one costs a little time. A large
 * table is not in the processor's cache: without this, each look-up waits for memory twice. */
static inline void names_look_ahead(const Names *names, const uint8_t *name, size_t length,
                                    size_t step, const uint8_t *end, NamesAhead *ahead) {
    if (names->count < NAMES_CACHED || (size_t)(end - name) < NAMES_AHEAD * step + length)
        return;
    const NameSlots *slots = __atomic_load_n(&names->slots, __ATOMIC_ACQUIRE);
    uint64_t hash = hash_bytes(name + NAMES_AHEAD * step, length, names->seed);
    uint64_t nearer = ahead->hash[(ahead->count - NAMES_AHEAD / 2) % NAMES_AHEAD];
    __builtin_prefetch(&slots->slot[hash & slots->mask]);
    __builtin_prefetch(__atomic_load_n(&slots->slot[nearer & slots->mask].bytes, __ATOMIC_RELAXED));
    uint32_t newest = ahead->count++ % NAMES_AHEAD;
    ahead->hash[newest] = hash;
    ahead->name[newest] = name + NAMES_AHEAD * step;
    ahead->length[newest] = (uint32_t)length;
}

static inline void names_place(NameSlots *slots, uint64_t hash, NameSlot entry) {
    uint64_t place = hash & slots->mask;
    while (slots->slot[place].number)
        place = (place + 1) & slots->mask;
    slots->slot[place].bytes = entry.bytes;
    slots->slot[place].length = entry.length;
    slots->slot[place].tag = entry.tag;
    __atomic_store_n(&slots->slot[place].number, entry.number, __ATOMIC_RELEASE);
}

/* Adds a name that is not there yet; returns 0 if memory is short. */
static inline int names_add(Names *names, const uint8_t *bytes, uint32_t length, uint32_t number) {
    NameSlots *slots = names->slots;
    if (names->count + names->removed >= (slots->mask + 1) / 2) {
        /* Where most slots in use are of removed names, the same size is enough. */
        uint64_t factor = names->count >= (slots->mask + 1) / 4 ? 2 : 1;
        NameSlots *wider = names_slots((slots->mask + 1) * factor, slots);
        if (!wider)
            return 0;
        for (uint64_t place = 0; place <= slots->mask; place++)
            if (slots->slot[place].number && slots->slot[place].length != NAME_REMOVED)
                names_place(wider,
                            hash_bytes(slots->slot[place].bytes, slots->slot[place].length, names->seed),
                            slots->slot[place]);
        __atomic_store_n(&names->slots, wider, __ATOMIC_RELEASE);
        names->removed = 0;
        slots = wider;
    }
    uint64_t hash = hash_bytes(bytes, length, names->seed);
    NameSlot entry = {bytes, length, (uint32_t)(hash >> 32), number};
    names_place(slots, hash, entry);
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
        free(outgrown);
    }
    uint64_t hash = hash_bytes(bytes, length, names->seed);
    for (uint64_t place = hash & slots->mask; slots->slot[place].number;
         place = (place + 1) & slots->mask) {
        NameSlot *slot = &slots->slot[place];
        if (slot->number == number && slot->length == length &&
            same_bytes(slot->bytes, bytes, length)) {
            slot->length = NAME_REMOVED;
            slot->bytes = NULL;
            names->count--;
            names->removed++;
            return 1;
        }
    }
    return 0;
}

#endif
