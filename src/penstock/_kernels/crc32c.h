/* CRC32C (Castagnoli, reflected, as RFC 3720): by the processor's instruction where it has one,
   else by a table. Pass ~crc of what came before to go on; the result is not inverted. */

#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define CRC32C_X86 1
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_LANE 2048 /* bytes of each of three lanes */

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_shift[4][256]; /* what a lane of zeros makes of a state, byte by byte */
static int crc32c_hardware;

static inline void crc32c_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_table[0][byte] = state;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            crc32c_table[k][byte] =
                crc32c_table[k - 1][byte] >> 8 ^ crc32c_table[0][crc32c_table[k - 1][byte] & 0xFF];
    for (uint32_t bit = 0; bit < 32; bit++) {
        uint32_t state = UINT32_C(1) << bit;
        for (int zero = 0; zero < CRC32C_LANE; zero++)
            state = state >> 8 ^ crc32c_table[0][state & 0xFF];
        for (uint32_t byte = 0; byte < 256; byte++)
            if (byte >> (bit & 7) & 1)
                crc32c_shift[bit >> 3][byte] ^= state;
    }
#ifdef CRC32C_X86
    crc32c_hardware = __builtin_cpu_supports("sse4.2");
#endif
}

/* Eight bytes at a time, by eight tables. */
static inline uint32_t crc32c_by_tables(uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= state;
        state = crc32c_table[7][word & 0xFF] ^ crc32c_table[6][word >> 8 & 0xFF] ^
                crc32c_table[5][word >> 16 & 0xFF] ^ crc32c_table[4][word >> 24 & 0xFF] ^
                crc32c_table[3][word >> 32 & 0xFF] ^ crc32c_table[2][word >> 40 & 0xFF] ^
                crc32c_table[1][word >> 48 & 0xFF] ^ crc32c_table[0][word >> 56];
    }
    for (; n; n--)
        state = state >> 8 ^ crc32c_table[0][(state ^ *p++) & 0xFF];
    return state;
}

#ifdef CRC32C_X86
static inline uint32_t crc32c_past_a_lane(uint32_t state) {
    return crc32c_shift[0][state & 0xFF] ^ crc32c_shift[1][state >> 8 & 0xFF] ^
           crc32c_shift[2][state >> 16 & 0xFF] ^ crc32c_shift[3][state >> 24];
}

/* The instruction takes three cycles and a new one can start with each: three lanes keep it busy.
   A checksum is linear, so those of the lanes add up once the earlier are moved past the later. */
__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 3 * CRC32C_LANE; p += 3 * CRC32C_LANE, n -= 3 * CRC32C_LANE) {
        uint64_t first = state, second = 0, third = 0;
        for (size_t at = 0; at < CRC32C_LANE; at += 8) {
            uint64_t a, b, c;
            memcpy(&a, p + at, 8);
            memcpy(&b, p + CRC32C_LANE + at, 8);
            memcpy(&c, p + 2 * CRC32C_LANE + at, 8);
            first = _mm_crc32_u64(first, a);
            second = _mm_crc32_u64(second, b);
            third = _mm_crc32_u64(third, c);
        }
        state = crc32c_past_a_lane((uint32_t)first) ^ (uint32_t)second;
        state = crc32c_past_a_lane(state) ^ (uint32_t)third;
    }
    uint64_t wide = state;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; n; n--)
        state = _mm_crc32_u8(state, *p++);
    return state;
}
#endif

static inline uint32_t crc32c_extend(uint32_t state, const uint8_t *p, size_t n) {
#ifdef CRC32C_X86
    if (crc32c_hardware)
        return crc32c_by_instruction(state, p, n);
#endif
    return crc32c_by_tables(state, p, n);
}

#endif
