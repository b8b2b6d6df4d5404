/* Many samples of a dense network, a bit of all samples at a time; hidden layers have few weights,
 * of -1 and 1.
 *
 * Bit s of a slice belongs to sample s of ROWS. An input of b bits has b planes, a slice each; a
 * unit has one for each of its limits. A counter is an array of slices, its lowest bits first. So a
 * full adder of a few logical operations adds an input to all samples at once, whatever the other
 * weights are, and weights of 0 cost nothing. Trees of adders pass a carry on for each 16 inputs
 * (Harley and Seal).
 *
 * A counter is the limit, plus the inputs of weight -1, less those of weight 1; the unit's bit is
 * its sign. Planes come from the highest down: the counter is doubled, or with two planes to a
 * slice of twice the width multiplied by 4, and takes the limit's next bits. The bits of a unit's
 * further limits are the signs of the counter plus what these exceed the first one by.
 *
 * The last layer has int8 weights. Each of their digits, of -1, 0 and 1, has lists of its own, and
 * all of them take the same slices. The class of the least counter leads.
 */
typedef uint64_t plane __attribute__((vector_size(ROWS / 8)));
typedef uint64_t pair __attribute__((vector_size(ROWS / 4)));

/* Words of a slice; bits of counters and labels, as COUNTERS and MOST_CLASSES in slices.py allow. */
enum { SLICE_WORDS = ROWS / 64, MOST_OF_COUNTER = 20, MOST_OF_LABEL = 16 };

/* Lists of the places of a unit's weights of -1 and of 1, whose lengths are multiples of 4. */
struct unit {
    int32_t below, above, limit, number;
};

/* A layer, as SLICES in slices.py. */
struct slices {
    const struct unit *all; /* in the last layer: by class and digit, the highest digit first */
    const uint32_t *places; /* bytes from the first slice of a step; the last slice is 0 */
    const int32_t *gaps;    /* by unit: from its first limit to each other one */
    int32_t units, bits;    /* bits of a counter: 8, 10, 12, 16 or MOST_OF_COUNTER */
    int32_t each, apart;    /* limits of a unit; slices from those of one limit to the next */
    int32_t steps, bytes;   /* of planes, or pairs of planes; the bytes of each */
    int32_t planes;         /* of a slice: 1, or 2 in the first layer with AVX-512 */
    int32_t by_digit;       /* whether each step is a digit of the weights */
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
            if (layer->by_digit) {                                                                 \
                places += unit->below + unit->above;                                               \
                unit++;                                                                            \
            }                                                                                      \
            in -= layer->bytes;                                                                    \
            _Pragma("GCC unroll 20") for (k = bits - 1; k >= planes; k--) s[k] = s[k - planes];    \
            for (k = 0; k < planes; k++)                                                           \
                s[k] = spread_##V(limit >> planes * step, k);                                      \
        }                                                                                          \
    }

FOR_SLICES(plane)
FOR_SLICES(pair)

/* Write the bits of a unit, from its counter. */
INLINE void compare(const int level, const int bits, const struct slices *layer, int unit,
                    const plane *s, plane *to)
{
    const int32_t *const gaps = layer->gaps + (ptrdiff_t)unit * (layer->each - 1);
    int j, k;
    to[0] = s[bits - 1];
    for (j = 1; j < layer->each; j++) {
        const plane_of_limits gap = (plane_of_limits){0} + gaps[j - 1];
        plane sum = {0}, carry = {0};
#pragma GCC unroll 20
        for (k = 0; k < bits; k++) {
            sum = s[k];
            carry = add_2_plane(level, 0, &sum, spread_plane(gap, k), carry);
        }
        to[j * (ptrdiff_t)layer->apart] = sum;
    }
}

INLINE void count_planes(const int level, const int bits, const struct slices *layer,
                         const uint8_t *in, plane *to)
{
    const uint32_t *places = layer->places;
    int u;
    for (u = 0; u < layer->units; u++) {
        const struct unit *const unit = layer->all + u;
        plane s[MOST_OF_COUNTER];
        count_plane(level, bits, 1, ~(plane){0}, layer, unit, places, in, s);
        compare(level, bits, layer, u, s, to + unit->number);
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
        plane carry = {0}, high = {0}, sums[MOST_OF_COUNTER];
        count_pair(AVX512, bits, 2, low, layer, unit, places, in, s);
#pragma GCC unroll 20
        for (k = 0; k < bits; k++) {
            plane sum = (plane)_mm512_castsi512_si256((__m512i)s[k]);
            carry = add_2_plane(AVX512, 0, &sum, high, carry);
            high = (plane)_mm512_extracti64x4_epi64((__m512i)s[k], 1);
            sums[k] = sum;
        }
        compare(AVX512, bits, layer, u, sums, to + unit->number);
        places += unit->below + unit->above;
    }
}

/* Find the first of the classes whose counters are least: a slice for each bit of its number. */
INLINE void find_labels(const int level, const int bits, const struct slices *layer,
                        const uint8_t *in, plane *labels)
{
    const struct unit *unit = layer->all;
    const uint32_t *places = layer->places;
    plane least[MOST_OF_COUNTER] = {{0}};
    int u, k;
    for (u = 0; u < layer->units; u++) {
        plane s[MOST_OF_COUNTER], less = ~(plane){0}, borrowed = {0};
        count_plane(level, bits, 1, ~(plane){0}, layer, unit, places, in, s);
#pragma GCC unroll 20
        for (k = 0; u && k < bits; k++) {
            less = s[k];
            borrowed = add_2_plane(level, 1, &less, least[k], borrowed);
        }
#pragma GCC unroll 20
        for (k = 0; k < bits; k++)
            least[k] ^= (least[k] ^ s[k]) & less;
        for (k = 0; k < MOST_OF_LABEL; k++)
            labels[k] = u >> k & 1 ? labels[k] | less : labels[k] & ~less;
        for (k = 0; k < layer->steps; k++, unit++)
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

static void labels_plain(const struct slices *layer, const uint8_t *in, plane *labels)
{
    find_labels(PLAIN, layer->bits, layer, in, labels);
}

#define RUN(bits) count_planes(AVX2, bits, layer, in, to)
static WITH_AVX2 void count_avx2(const struct slices *layer, const uint8_t *in, plane *to)
{
    FOR_BITS(RUN)
}
#undef RUN

#define RUN(bits) find_labels(AVX2, bits, layer, in, labels)
static WITH_AVX2 void labels_avx2(const struct slices *layer, const uint8_t *in, plane *labels)
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

#define RUN(bits) find_labels(AVX512, bits, layer, in, labels)
static WITH_AVX512 void labels_avx512(const struct slices *layer, const uint8_t *in, plane *labels)
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
