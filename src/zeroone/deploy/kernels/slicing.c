/* From samples to slices of their inputs, and from slices of units to rows of bits. */

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

/* Slice the inputs of samples: the words of 64 samples and 64 features at a time. */
static void slice_words(const struct network *network, const uint8_t *in, int samples, uint8_t *to)
{
    const struct slices *const layer = network->slices;
    const int level = network->level;
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
            if (block.samples < 64)
                memset(rows, 0, sizeof rows);
            (level == PLAIN ? find_bits_plain : find_bits_avx2)(block, network->shift,
                                                                network->bits, rows);
            for (bit = 0; bit < layer->steps; bit++) {
                uint64_t *const plane = (uint64_t *)(to + bit * (ptrdiff_t)layer->bytes) +
                                        k * (ptrdiff_t)SLICE_WORDS + group;
                transpose(level, rows[bit]);
                for (s = 0; s < block.left / 8; s++)
#pragma GCC unroll 8
                    for (j = 0; j < 8; j++)
                        plane[(8 * s + j) * (ptrdiff_t)SLICE_WORDS] = rows[bit][8 * j + s];
                for (s *= 8; s < block.left; s++)
                    plane[s * (ptrdiff_t)SLICE_WORDS] = rows[bit][at(s)];
            }
        }
    }
}

/* Transpose bytes: eight vectors, of which each is a row, become pairs of columns of a lane. */
INLINE WITH_AVX512 void turn_bytes(__m512i *x)
{
    __m512i a[8], b[8];
    int k;
#pragma GCC unroll 4
    for (k = 0; k < 8; k += 2) {
        a[k] = _mm512_unpacklo_epi8(x[k], x[k + 1]);
        a[k + 1] = _mm512_unpackhi_epi8(x[k], x[k + 1]);
    }
#pragma GCC unroll 4
    for (k = 0; k < 4; k++) {
        const int from = k / 2 * 4 + k % 2;
        b[2 * k] = _mm512_unpacklo_epi16(a[from], a[from + 2]);
        b[2 * k + 1] = _mm512_unpackhi_epi16(a[from], a[from + 2]);
    }
#pragma GCC unroll 4
    for (k = 0; k < 4; k++) {
        x[2 * k] = _mm512_unpacklo_epi32(b[k], b[k + 4]);
        x[2 * k + 1] = _mm512_unpackhi_epi32(b[k], b[k + 4]);
    }
}

/* Some blocks of 64 features, whose bits in use fill the bytes of a vector: those of block 0 are
 * the highest. A bit that no block uses has nowhere to go. */
struct pack {
    const uint8_t *in[8];
    __mmask64 some[8]; /* the features of a block that are there */
    uint8_t *to[8];    /* by bit */
    int left[8];       /* features, by bit */
};

/* The bytes of a sample, of blocks whose upper ``width`` bits are in use. */
INLINE WITH_AVX512 __m512i packed(const int width, const struct pack *pack, ptrdiff_t at)
{
    const __m512i low = _mm512_set1_epi8((char)((1 << (8 - width)) - 1));
    int k = 8 / width - 1;
    __m512i bytes = _mm512_maskz_loadu_epi8(pack->some[k], pack->in[k] + at);
#pragma GCC unroll 8
    while (k--) {
        const __m512i above = _mm512_maskz_loadu_epi8(pack->some[k], pack->in[k] + at);
        bytes = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(bytes, width), above, 0xCA);
    }
    return bytes;
}

/* Bits of eight samples: by sample of a byte, plane, and feature of a vector. */
INLINE WITH_AVX512 void bits_of_eight(const int width, const struct pack *pack, ptrdiff_t stride,
                                      int first, int samples, __m512i *to)
{
    const __m512i identity = _mm512_set1_epi64((long long)0x8040201008040201);
    int k;
#pragma GCC unroll 8
    for (k = 0; k < 8; k++) { /* an affine map reverses the order of rows */
        const int s = first + 7 - k;
        to[k] = s < samples ? packed(width, pack, s * stride) : _mm512_setzero_si512();
    }
    turn_bytes(to);
#pragma GCC unroll 8
    for (k = 0; k < 8; k++)
        to[k] = _mm512_gf2p8affine_epi64_epi8(identity, to[k], 0);
}

/* Write the slices of two bits of four features each, from the words of four times 64 samples. */
INLINE WITH_AVX512 void write_slices(const struct pack *pack, const __m512i *words, ptrdiff_t apart,
                                     int bit, int first)
{
    const __m512i lower = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i upper = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    int h, lane;
#pragma GCC unroll 2
    for (h = 0; h < 2; h++) {
        const __m512i a = h ? _mm512_unpackhi_epi64(words[0], words[8])
                            : _mm512_unpacklo_epi64(words[0], words[8]);
        const __m512i b = h ? _mm512_unpackhi_epi64(words[16], words[24])
                            : _mm512_unpacklo_epi64(words[16], words[24]);
        const __m512i half[2] = {_mm512_permutex2var_epi64(a, lower, b),
                                 _mm512_permutex2var_epi64(a, upper, b)};
        uint8_t *const to = pack->to[bit + h];
        const int left = pack->left[bit + h] - first;
        if (!to)
            continue;
#pragma GCC unroll 4
        for (lane = 0; lane < 4 && 16 * lane < left; lane++) {
            const __m512i some = half[lane / 2];
            const __m256i slice =
                lane % 2 ? _mm512_extracti64x4_epi64(some, 1) : _mm512_castsi512_si256(some);
            _mm256_storeu_si256((__m256i *)(to + (16 * lane + first) * apart), slice);
        }
    }
}

INLINE WITH_AVX512 void slice_pack(const int width, const struct pack *pack, ptrdiff_t stride,
                                   int samples, ptrdiff_t apart)
{
    __m512i turned[4 * 8][8], words[4 * 8];
    int group, v, w;
    for (group = 0; group < 4 * 8; group++)
        bits_of_eight(width, pack, stride, 8 * group, samples, turned[group]);
    for (v = 0; v < 8; v++) {
        for (group = 0; group < 4 * 8; group++)
            words[group] = turned[group][v];
#pragma GCC unroll 4
        for (w = 0; w < 4; w++)
            turn_bytes(words + 8 * w);
        for (w = 0; w < 8; w++) /* pairs of columns: bits of the features 2 v, then 2 v + 1 */
            write_slices(pack, words + w, apart, w % 4 * 2, 2 * v + w / 4);
    }
}

/* The same as slice_words, also for two planes to a slice. */
static WITH_AVX512 void slice_avx512(const struct network *network, const uint8_t *in, int samples,
                                     uint8_t *to)
{
    const struct slices *const layer = network->slices;
    const int bits = network->bits, width = bits > 4 ? 8 : bits > 2 ? 4 : bits;
    const ptrdiff_t apart = 8 * (ptrdiff_t)(layer->planes * SLICE_WORDS);
    const ptrdiff_t stride = network->features;
    int k = 0, block, plane;
    if (layer->planes * layer->steps > bits) /* the highest plane is 0 */
        memset(to + (layer->steps - 1) * (ptrdiff_t)layer->bytes, 0, layer->bytes);
    while (k < network->features) {
        struct pack pack = {{0}, {0}, {0}, {0}};
        for (block = 0; k < network->features && block < 8 / width; k += 64) {
            const int left = network->features - k < 64 ? network->features - k : 64;
            if (network->taken && !network->taken[k / 64])
                continue;
            pack.in[block] = in + k;
            pack.some[block] = left < 64 ? (1ull << left) - 1 : ~0ull;
            for (plane = 0; plane < bits; plane++) {
                const int bit = 8 - width * block - bits + plane;
                uint8_t *const step = to + plane / layer->planes * (ptrdiff_t)layer->bytes;
                pack.left[bit] = left;
                pack.to[bit] = step + k * apart + plane % layer->planes * SLICE_WORDS * 8;
            }
            block++;
        }
        for (; block < 8 / width; block++)
            pack.in[block] = in; /* of which nothing is loaded */
        switch (width) {
        case 1: slice_pack(1, &pack, stride, samples, apart); break;
        case 2: slice_pack(2, &pack, stride, samples, apart); break;
        case 4: slice_pack(4, &pack, stride, samples, apart); break;
        default: slice_pack(8, &pack, stride, samples, apart);
        }
    }
}

/* Slice the inputs of samples; the slice after those of a step is 0. */
static void slice(const struct network *network, const uint8_t *in, int samples, uint8_t *to)
{
    const struct slices *const layer = network->slices;
    const int words = layer->planes * SLICE_WORDS;
    int k;
    if (network->level == AVX512)
        slice_avx512(network, in, samples, to);
    else
        slice_words(network, in, samples, to);
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

/* Turn slices of the bits of labels into numbers. */
static void write_labels(const plane *bits, int classes, int samples, int32_t *to)
{
    int s, k;
    for (s = 0; s < samples; s++)
        to[s] = 0;
    for (k = 0; classes > 1 << k; k++)
        for (s = 0; s < samples; s++)
            to[s] |= (int32_t)(bits[k][s / 64] >> s % 64 & 1) << k;
}
