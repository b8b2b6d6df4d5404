/* Many samples of a dense network with few weights of -1 and 1, a bit of all samples at a time.
 *
 * Bit s of a slice belongs to sample s of ROWS. An input of b bits has b planes, a slice each; a
 * unit has one. A counter is an array of slices, its lowest bits first. So a full adder of a few
 * logical operations adds an input to all samples at once, whatever the other weights are, and
 * weights of 0 cost nothing. Trees of adders pass a carry on for each 16 inputs (Harley and Seal).
 *
 * A counter is the limit, plus the inputs of weight -1, less those of weight 1; the unit's bit is
 * its sign. Planes come from the highest down: the counter is doubled, or with two planes to a slice of
 * twice the width multiplied by 4, and takes the limit's next bits.
 */
typedef uint64_t plane __attribute__((vector_size(ROWS / 8)));
typedef uint64_t pair __attribute__((vector_size(ROWS / 4)));

enum { SLICE_WORDS = ROWS / 64, MOST_OF_COUNTER = 20 }; /* words of a slice; bits */

/* Lists of the places of a unit's weights of -1 and of 1, whose lengths are multiples of 4. */
struct unit {
    int32_t below, above, limit, number;
};

/* A hidden layer, as SLICES in kernel.py. */
struct slices {
    const struct unit *all;
    const uint32_t *places; /* bytes from the first slice of a step; the last slice is 0 */
    int32_t units, bits;    /* bits of a counter: 8, 10, 12, 16 or MOST_OF_COUNTER */
    int32_t steps, bytes;   /* of planes, or pairs of planes; the bytes of each */
    int32_t planes;         /* of a slice: 1, or 2 in the first layer with AVX-512 */
};

/* The slice at place k of a list: places are bytes from the first one. */
#define AT(k) (*(const typeof(*s) *)(in + places[k]))

/* Functions for slices of type V; ``less`` is 1 to subtract. */
#define FOR_SLICES(V)                                                                              \
    typedef int32_t V##_of_limits __attribute__((vector_size(sizeof(V))));                         \
    /* Spread bit k of a limit over a slice. */                                                    \
    INLINE V spread_##V(V##_of_limits limits, int k)                                               \
    {                                                                                              \
        return (V)(limits << (31 - k) >> 31);                                                      \
    }                                                                                              \
    /* Add two slices to *s; return what is carried, or borrowed. */                               \
    INLINE V add_2_##V(const int level, const int less, V *s, V a, V b)                            \
    {                                                                                              \
        V carry = *s, sum = *s;                                                                    \
        if (level == AVX512) {                                                                     \
            if (less)                                                                              \
                __asm__("vpternlogq $0x8e, %2, %1, %0" : "+v"(carry) : "v"(a), "v"(b));            \
            else                                                                                   \
                __asm__("vpternlogq $0xe8, %2, %1, %0" : "+v"(carry) : "v"(a), "v"(b));            \
            __asm__("vpternlogq $0x96, %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));                  \
        } else {                                                                                   \
            const V either = sum ^ a;                                                              \
            carry = less ? (~sum & a) | (~either & b) : (sum & a) | (either & b);                  \
            sum = either ^ b;                                                                      \
        }                                                                                          \
        *s = sum;                                                                                  \
        return carry;                                                                              \
    }                                                                                              \
    INLINE V add_4_##V(const int level, const int less, V *s, const uint8_t *in,                   \
                       const uint32_t *places)                                                     \
    {                                                                                              \
        V some = AT(0), carry = add_2_##V(level, 0, &some, AT(1), AT(2));                          \
        return add_2_##V(level, less, s + 1, carry, add_2_##V(level, less, s, some, AT(3)));       \
    }                                                                                              \
    INLINE V add_8_##V(const int level, const int less, V *s, const uint8_t *in,                   \
                       const uint32_t *places)                                                     \
    {                                                                                              \
        const V carry = add_4_##V(level, less, s, in, places);                                     \
        return add_2_##V(level, less, s + 2, carry, add_4_##V(level, less, s, in, places + 4));    \
    }                                                                                              \
    INLINE V add_16_##V(const int level, const int less, V *s, const uint8_t *in,                  \
                        const uint32_t *places)                                                    \
    {                                                                                              \
        const V carry = add_8_##V(level, less, s, in, places);                                     \
        return add_2_##V(level, less, s + 3, carry, add_8_##V(level, less, s, in, places + 8));    \
    }                                                                                              \
    INLINE void carry_##V(const int bits, const int less, V *s, int k, V carry)                    \
    {                                                                                              \
        _Pragma("GCC unroll 20") for (; k < bits; k++)                                             \
        {                                                                                          \
            const V next = (less ? ~s[k] : s[k]) & carry;                                          \
            s[k] ^= carry;                                                                         \
            carry = next;                                                                          \
        }                                                                                          \
    }                                                                                              \
    /* Add the slices of a list, whose length is a multiple of 4. */                               \
    INLINE void add_##V(const int level, const int bits, const int less, V *s, const uint8_t *in,  \
                        const uint32_t *places, int length)                                        \
    {                                                                                              \
        for (; length >= 16; length -= 16, places += 16)                                           \
            carry_##V(bits, less, s, 4, add_16_##V(level, less, s, in, places));                   \
        if (length & 8) {                                                                          \
            carry_##V(bits, less, s, 3, add_8_##V(level, less, s, in, places));                    \
            places += 8;                                                                           \
        }                                                                                          \
        if (length & 4)                                                                            \
            carry_##V(bits, less, s, 2, add_4_##V(level, less, s, in, places));                    \
    }                                                                                              \
    /* Compute the counter of a unit; its limit is in the lanes of ``counts``. */                  \
    INLINE void count_##V(const int level, const int bits, const int planes, V counts,             \
                          const struct slices *layer, const struct unit *unit,                     \
                          const uint32_t *places, const uint8_t *in, V *s)                         \
    {                                                                                              \
        const V##_of_limits limit = (V##_of_limits)counts & unit->limit;                           \
        int k, step = layer->steps - 1;                                                            \
        in += step * (ptrdiff_t)layer->bytes;                                                      \
        _Pragma("GCC unroll 20") for (k = 0; k < bits; k++)                                        \
            s[k] = spread_##V(limit >> planes * step, k);                                          \
        for (;;) {                                                                                 \
            add_##V(level, bits, 0, s, in, places, unit->below);                                   \
            add_##V(level, bits, 1, s, in, places + unit->below, unit->above);                     \
            if (!step--)                                                                           \
                return;                                                                            \
            in -= layer->bytes;                                                                    \
            _Pragma("GCC unroll 20") for (k = bits - 1; k >= planes; k--) s[k] = s[k - planes];    \
            for (k = 0; k < planes; k++)                                                           \
                s[k] = spread_##V(limit >> planes * step, k);                                      \
        }                                                                                          \
    }

FOR_SLICES(plane)
FOR_SLICES(pair)

INLINE void count_planes(const int level, const int bits, const struct slices *layer,
                         const uint8_t *in, plane *to)
{
    const uint32_t *places = layer->places;
    int u;
    for (u = 0; u < layer->units; u++) {
        const struct unit *const unit = layer->all + u;
        plane s[MOST_OF_COUNTER];
        count_plane(level, bits, 1, ~(plane){0}, layer, unit, places, in, s);
        to[unit->number] = s[bits - 1];
        places += unit->below + unit->above;
    }
}

/* The same with two planes to a slice, of which the upper half counts twice. */
INLINE WITH_AVX512 void count_pairs(const int bits, const struct slices *layer, const uint8_t *in,
                                    plane *to)
{
    const pair low = {~0ull, ~0ull, ~0ull, ~0ull};
    const uint32_t *places = layer->places;
    int u, k;
    for (u = 0; u < layer->units; u++) {
        const struct unit *const unit = layer->all + u;
        pair s[MOST_OF_COUNTER];
        plane carry = {0}, high = {0};
        count_pair(AVX512, bits, 2, low, layer, unit, places, in, s);
#pragma GCC unroll 20
        for (k = 0; k < bits; k++) {
            plane sum = (plane)_mm512_castsi512_si256((__m512i)s[k]);
            carry = add_2_plane(AVX512, 0, &sum, high, carry);
            high = (plane)_mm512_extracti64x4_epi64((__m512i)s[k], 1);
            to[unit->number] = sum;
        }
        places += unit->below + unit->above;
    }
}

/* The number of bits of a counter is known to the compiler, so that it stays in registers. */
#define FOR_BITS(run)                                                                              \
    switch (layer->bits) {                                                                         \
    case 8: run(8); break;                                                                         \
    case 10: run(10); break;                                                                       \
    case 12: run(12); break;                                                                       \
    case 16: run(16); break;                                                                       \
    default: run(20);                                                                              \
    }

static void count_plain(const struct slices *layer, const uint8_t *in, plane *to)
{
    count_planes(PLAIN, layer->bits, layer, in, to);
}

#define RUN(bits) count_planes(AVX2, bits, layer, in, to)
static WITH_AVX2 void count_avx2(const struct slices *layer, const uint8_t *in, plane *to)
{
    FOR_BITS(RUN)
}
#undef RUN

#define RUN(bits) count_planes(AVX512, bits, layer, in, to)
static WITH_AVX512 void count_avx512(const struct slices *layer, const uint8_t *in, plane *to)
{
    FOR_BITS(RUN)
}
#undef RUN

#define RUN(bits) count_pairs(bits, layer, in, to)
static WITH_AVX512 void count_pairs_avx512(const struct slices *layer, const uint8_t *in, plane *to)
{
    FOR_BITS(RUN)
}
#undef RUN

/* Where a matrix of 64 x 64 bits has a row: rows 0, 8, 16, ... come first. */
INLINE unsigned at(unsigned row)
{
    return row % 8 * 8 + row / 8;
}

/* Transpose blocks of 8 x 8 bits: swap their quarters, then those of the quarters, and so on. */
INLINE void transpose_bits(uint64_t *rows)
{
    static const uint64_t masks[3] = {0x0f0f0f0f0f0f0f0f, 0x3333333333333333, 0x5555555555555555};
    plane *const planes = (plane *)rows;
    int step, k, j;
#pragma GCC unroll 3
    for (step = 0; step < 3; step++) {
        const int size = 4 >> step, apart = 64 / SLICE_WORDS >> (step + 1);
        for (k = 0; k < 64 / SLICE_WORDS; k += 2 * apart)
#pragma GCC unroll 8
            for (j = k; j < k + apart; j++) {
                const plane both = (planes[j] >> size ^ planes[j + apart]) & masks[step];
                planes[j] ^= both << size;
                planes[j + apart] ^= both;
            }
    }
}

/* Transpose a matrix of 64 x 64 bits: bits in blocks of 8 x 8, then the bytes of blocks. */
static void transpose_plain(uint64_t *rows)
{
    int k, j, i;
    transpose_bits(rows);
    for (k = 0; k < 64; k += 8) {
        uint64_t turned[8] = {0};
        for (i = 0; i < 8; i++)
            for (j = 0; j < 8; j++)
                turned[i] |= (rows[k + j] >> 8 * i & 255) << 8 * j;
        memcpy(rows + k, turned, sizeof turned);
    }
}

static WITH_AVX2 void transpose_avx2(uint64_t *rows)
{
    const __m256i pairs = _mm256_broadcastsi128_si256(
        _mm_set_epi8(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0));
    const __m256i halves = _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0);
    int k;
    transpose_bits(rows);
    for (k = 0; k < 64; k += 8) {
        __m256i *const both = (__m256i *)(rows + k);
        const __m256i a = _mm256_shuffle_epi8(both[0], pairs);
        const __m256i b = _mm256_shuffle_epi8(both[1], pairs);
        const __m256i x = _mm256_permute2x128_si256(a, b, 0x20);
        const __m256i y = _mm256_permute2x128_si256(a, b, 0x31);
        both[0] = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi16(x, y), halves);
        both[1] = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi16(x, y), halves);
    }
}

static WITH_AVX512 void transpose_avx512(uint64_t *rows)
{
    /* Byte 8 * i + j comes from 8 * j + i. */
    const __m512i first = _mm512_set1_epi64(0x3830282018100800);
    const __m512i from = _mm512_add_epi8(
        first, _mm512_mullo_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
                                  _mm512_set1_epi64(0x0101010101010101)));
    int k;
    transpose_bits(rows);
    for (k = 0; k < 64; k += 8)
        _mm512_store_si512(rows + k,
                           _mm512_permutexvar_epi8(from, _mm512_load_si512(rows + k)));
}

INLINE void transpose(int level, uint64_t *rows)
{
    (level == AVX512 ? transpose_avx512 : level == AVX2 ? transpose_avx2 : transpose_plain)(rows);
}

/* Some samples of 64 features, or of fewer that are left. */
struct block {
    const uint8_t *in;
    ptrdiff_t stride;
    int samples, left;
};

/* Find bits of all features of each sample: one of a byte's bits after the other. */
static void find_bits_plain(struct block block, int first, int bits, uint64_t rows[][64])
{
    int s, k, j;
    for (j = 0; j < bits; j++)
        for (s = 0; s < block.samples; s++) {
            uint64_t found = 0;
            for (k = 0; k < block.left; k++)
                found |= (uint64_t)(block.in[s * block.stride + k] >> (first + j) & 1) << k;
            rows[j][at(s)] = found;
        }
}

static WITH_AVX2 void find_bits_avx2(struct block block, int first, int bits, uint64_t rows[][64])
{
    uint8_t part[64] = {0};
    int s, j;
    for (s = 0; s < block.samples; s++) {
        const __m256i *bytes = (const __m256i *)(block.in + s * block.stride);
        if (block.left < 64)
            bytes = memcpy(part, bytes, block.left);
        for (j = 0; j < bits; j++) {
            const __m128i up = _mm_cvtsi32_si128(7 - first - j);
            const uint32_t low =
                _mm256_movemask_epi8(_mm256_sll_epi16(_mm256_loadu_si256(bytes), up));
            const uint32_t high =
                _mm256_movemask_epi8(_mm256_sll_epi16(_mm256_loadu_si256(bytes + 1), up));
            rows[j][at(s)] = low | (uint64_t)high << 32;
        }
    }
}

static WITH_AVX512 void find_bits_avx512(struct block block, int first, int bits,
                                         uint64_t rows[][64])
{
    const __mmask64 some = block.left < 64 ? (1ull << block.left) - 1 : ~0ull;
    int s, j;
    for (s = 0; s < block.samples; s++) {
        const __m512i bytes = _mm512_maskz_loadu_epi8(some, block.in + s * block.stride);
        for (j = 0; j < bits; j++)
            rows[j][at(s)] = _mm512_test_epi8_mask(bytes, _mm512_set1_epi8((char)(1 << (first + j))));
    }
}

/* Slice the inputs of samples: the words of 64 samples and 64 features at a time. */
static void slice(const struct network *network, const uint8_t *in, int samples, uint8_t *to)
{
    const struct slices *const layer = network->slices;
    const int level = network->level, planes = layer->planes, words = planes * SLICE_WORDS;
    uint64_t rows[8][64] __attribute__((aligned(64)));
    int k, group, bit, s, j;
    for (k = 0; k < network->features; k += 64) {
        struct block block = {in + k, network->features, 0, network->features - k};
        if (network->taken && !network->taken[k / 64])
            continue;
        block.left = block.left < 64 ? block.left : 64;
        for (group = 0; group < SLICE_WORDS; group++, block.in += 64 * block.stride) {
            const int left = samples - group * 64;
            block.samples = left < 0 ? 0 : left < 64 ? left : 64;
            if (block.samples < 64 || network->bits < planes * layer->steps)
                memset(rows, 0, sizeof rows);
            (level == AVX512 ? find_bits_avx512 : level == AVX2 ? find_bits_avx2 : find_bits_plain)(
                block, network->shift, network->bits, rows);
            for (bit = 0; bit < planes * layer->steps; bit++) {
                uint64_t *const plane =
                    (uint64_t *)(to + bit / planes * (ptrdiff_t)layer->bytes) +
                    k * (ptrdiff_t)words + bit % planes * SLICE_WORDS + group;
                transpose(level, rows[bit]);
                for (s = 0; s < block.left / 8; s++)
#pragma GCC unroll 8
                    for (j = 0; j < 8; j++)
                        plane[(8 * s + j) * (ptrdiff_t)words] = rows[bit][8 * j + s];
                for (s *= 8; s < block.left; s++)
                    plane[s * (ptrdiff_t)words] = rows[bit][at(s)];
            }
        }
    }
    for (k = 1; k <= layer->steps; k++)
        memset(to + k * (ptrdiff_t)layer->bytes - 8 * words, 0, 8 * words);
}

/* Turn the slices of units back into rows of bits, of so many words. */
static void unslice(int level, const uint64_t *slices, int units, int words, int samples,
                    uint32_t *to)
{
    uint64_t rows[64] __attribute__((aligned(64)));
    int k, group, s;
    for (k = 0; k < units; k += 64)
        for (group = 0; group < SLICE_WORDS && group * 64 < samples; group++) {
            const size_t wide = words - k / 32 < 2 ? 4 : 8;
            if (units - k < 64)
                memset(rows, 0, sizeof rows);
            for (s = 0; s < 64 && k + s < units; s++)
                rows[at(s)] = slices[(ptrdiff_t)(k + s) * SLICE_WORDS + group];
            transpose(level, rows);
            for (s = 0; s < 64 && group * 64 + s < samples; s++)
                memcpy(to + (ptrdiff_t)(group * 64 + s) * words + k / 32, rows + at(s), wide);
        }
}
