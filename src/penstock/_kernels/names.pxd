"""The C table of names.h, as Cython sees it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from "names.h" nogil:
    ctypedef struct Names:
        uint32_t count
    ctypedef struct NamesAhead:
        uint32_t count
    bint names_open(Names *names, uint64_t seed)
    void names_close(Names *names)
    uint32_t names_find(const Names *names, const uint8_t *bytes, size_t length)
    uint32_t names_find_ahead(
        const Names *names, const uint8_t *bytes, size_t length, const NamesAhead *ahead
    )
    void names_look_ahead(
        const Names *names,
        const uint8_t *name,
        size_t length,
        size_t step,
        const uint8_t *end,
        NamesAhead *ahead,
    )
    bint names_add(Names *names, const uint8_t *bytes, uint32_t length, uint32_t number)
    bint names_remove(Names *names, const uint8_t *bytes, uint32_t length, uint32_t number)
