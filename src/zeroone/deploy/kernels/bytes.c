/* Rows of bytes, or of bits, times int8 weights. Quads of inputs that are 0 are skipped.
 *
 * Weights are ordered by tile of units, quad, unit, and input of the quad.
 */

/* Four bytes of a row, and the number of their quad. */
struct quad {
    int32_t bytes, place;
};

/* Bits as bytes: four of them at a time. */
static const int32_t SPREAD[16] = {
    0x00000000, 0x00000001, 0x00000100, 0x00000101, 0x00010000, 0x00010001, 0x00010100, 0x00010101,
    0x01000000, 0x01000001, 0x01000100, 0x01000101, 0x01010000, 0x01010001, 0x01010100, 0x01010101};

/* Fill up with quads of zeros, to a multiple of SPARE. */
INLINE int filled(struct quad *found, int count)
{
    const struct quad none = {0, 0};
    while (count % SPARE)
        found[count++] = none;
    return count;
}

static int find_bytes(const uint8_t *in, int inputs, struct quad *found)
{
    int k, count = 0;
    for (k = 0; k < inputs / 4; k++) {
        memcpy(&found[count].bytes, in + 4 * k, 4);
        found[count].place = k;
        count += found[count].bytes != 0;
    }
    if (inputs % 4) {
        found[count].bytes = 0;
        memcpy(&found[count].bytes, in + 4 * k, inputs % 4);
        found[count].place = k;
        count += found[count].bytes != 0;
    }
    return filled(found, count);
}

static WITH_AVX512 int find_bytes_avx512(const uint8_t *in, int inputs, struct quad *found)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int k, count = 0;
    for (k = 0; k < inputs; k += 64) {
        const __mmask64 left = inputs - k < 64 ? (1ull << (inputs - k)) - 1 : ~0ull;
        const __m512i bytes = _mm512_maskz_loadu_epi8(left, in + k);
        const __mmask16 some = _mm512_test_epi32_mask(bytes, bytes);
        const __m512i a = _mm512_maskz_compress_epi32(some, bytes);
        const __m512i b = _mm512_maskz_compress_epi32(some, places);
        _mm512_storeu_si512(found + count, _mm512_permutex2var_epi32(a, low, b));
        _mm512_storeu_si512(found + count + 8, _mm512_permutex2var_epi32(a, high, b));
        count += __builtin_popcount(some);
        places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
    }
    return filled(found, count);
}

static int find_bits(const uint32_t *in, int words, struct quad *found)
{
    int k, j, count = 0;
    for (k = 0; k < words; k++)
        for (j = 0; j < 8; j++) {
            found[count].bytes = SPREAD[in[k] >> 4 * j & 15];
            found[count].place = 8 * k + j;
            count += found[count].bytes != 0;
        }
    return filled(found, count);
}

static void bytes_plain(const struct layer *layer, const struct quad *found, int count,
                        const int8_t *weights, int unit, int units, struct results to, int row)
{
    int j, k, i;
    for (j = 0; j < units; j += LANES) {
        int32_t sums[LANES] = {0};
        for (k = 0; k < count; k++) {
            const int8_t *const w = weights + 4 * ((size_t)found[k].place * units + j);
            for (i = 0; i < 4 * LANES; i++)
                sums[i / 4] += (found[k].bytes >> 8 * (i % 4) & 255) * w[i];
        }
        finish(sums, layer->limits, to, row, unit + j);
    }
}

/* ``vectors`` times eight units from the place of ``weights`` in a tile of ``units``.
 *
 * vpmaddubsw adds two products in 16 bits, where ``room`` quads fit; then they are widened. */
INLINE WITH_AVX2 void bytes_lanes(const int vectors, const int room, const struct layer *layer,
                                  const struct quad *found, int count, const int8_t *weights,
                                  int unit, int units, struct results to, int row)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[4], parts[4];
    int k, v, end;
    for (v = 0; v < vectors; v++)
        sums[v] = _mm256_setzero_si256();
    for (k = 0; k < count;) {
        for (v = 0; v < vectors; v++)
            parts[v] = _mm256_setzero_si256();
        end = count - k < room ? count : k + room;
        for (; k < end; k++) {
            const __m256i x = _mm256_set1_epi32(found[k].bytes);
            const __m256i *const w =
                (const __m256i *)(weights + 4 * (size_t)found[k].place * units);
#pragma GCC unroll 4
            for (v = 0; v < vectors; v++) {
                const __m256i pairs = _mm256_maddubs_epi16(x, _mm256_loadu_si256(w + v));
                parts[v] = _mm256_add_epi16(parts[v], pairs);
            }
        }
        for (v = 0; v < vectors; v++)
            sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(parts[v], ones));
    }
    for (v = 0; v < vectors; v += 2)
        finish_avx2(sums[v], sums[v + 1], layer->limits, to, row, unit + 8 * v);
}

static WITH_AVX2 void bytes_avx2(const struct layer *layer, const struct quad *found, int count,
                                 const int8_t *weights, int unit, int units, struct results to,
                                 int row)
{
    int j;
    for (j = 0; j + 32 <= units; j += 32)
        if (layer->room == 1) /* no inner loop */
            bytes_lanes(4, 1, layer, found, count, weights + 4 * j, unit + j, units, to, row);
        else
            bytes_lanes(4, layer->room, layer, found, count, weights + 4 * j, unit + j, units, to,
                        row);
    if (j < units)
        bytes_lanes(2, layer->room, layer, found, count, weights + 4 * j, unit + j, units, to, row);
}

/* ``vectors`` times LANES units; eight sums at a time hide the latency of vpdpbusd. */
INLINE WITH_AVX512 void bytes_vectors(const int vectors, const struct layer *layer,
                                      const struct quad *found, int count, const int8_t *weights,
                                      int unit, struct results to, int row)
{
    const int streams = SPARE / vectors;
    __m512i sums[SPARE];
    int k, r, v;
    for (v = 0; v < SPARE; v++)
        sums[v] = _mm512_setzero_si512();
    for (k = 0; k < count; k += streams)
#pragma GCC unroll 8
        for (r = 0; r < streams; r++) {
            const __m512i x = _mm512_set1_epi32(found[k + r].bytes);
            const int8_t *const w = weights + (size_t)found[k + r].place * vectors * 64;
#pragma GCC unroll 8
            for (v = 0; v < vectors; v++)
                sums[vectors * r + v] = _mm512_dpbusd_epi32(sums[vectors * r + v], x,
                                                            _mm512_loadu_si512(w + 64 * v));
        }
    for (v = 0; v < vectors; v++) {
        for (r = 1; r < streams; r++)
            sums[v] = _mm512_add_epi32(sums[v], sums[vectors * r + v]);
        finish_avx512(sums[v], layer->limits, to, row, unit + LANES * v);
    }
}

static WITH_AVX512 void bytes_avx512(const struct layer *layer, const struct quad *found, int count,
                                     const int8_t *weights, int unit, int units, struct results to,
                                     int row)
{
    if (units == 8 * LANES)
        bytes_vectors(8, layer, found, count, weights, unit, to, row);
    else if (units == 4 * LANES)
        bytes_vectors(4, layer, found, count, weights, unit, to, row);
    else if (units == 2 * LANES)
        bytes_vectors(2, layer, found, count, weights, unit, to, row);
    else
        bytes_vectors(1, layer, found, count, weights, unit, to, row);
}

/* The quads of a row, and room for what vectors write beyond them. */
INLINE int quads_of(const struct layer *layer)
{
    return layer->takes == OF_BITS ? 8 * layer->inputs : (layer->inputs + 3) / 4;
}

/* Run a layer with int8 weights on at most ROWS rows; ``found`` has room for quads_of + 2 SPARE
 * quads a row. */
static void run_bytes(const struct layer *layer, int level, const uint8_t *in, ptrdiff_t stride,
                      int rows, struct quad *found, struct results to)
{
    const int8_t *weights = layer->weights;
    const int quads = quads_of(layer), room = quads + 2 * SPARE;
    int counts[ROWS], row, unit, units;
    for (row = 0; row < rows; row++) {
        const uint8_t *const x = in + row * stride;
        struct quad *const which = found + (ptrdiff_t)room * row;
        if (layer->takes == OF_BITS)
            counts[row] = find_bits((const uint32_t *)x, layer->inputs, which);
        else if (level == AVX512)
            counts[row] = find_bytes_avx512(x, layer->inputs, which);
        else
            counts[row] = find_bytes(x, layer->inputs, which);
    }
    for (unit = 0; unit < layer->units; unit += units) {
        units = tile_of(layer->units - unit, layer->tile);
        for (row = 0; row < rows; row++) {
            const struct quad *const which = found + (ptrdiff_t)room * row;
            if (level == AVX512)
                bytes_avx512(layer, which, counts[row], weights, unit, units, to, row);
            else if (level == AVX2)
                bytes_avx2(layer, which, counts[row], weights, unit, units, to, row);
            else
                bytes_plain(layer, which, counts[row], weights, unit, units, to, row);
        }
        weights += 4 * (size_t)quads * units;
    }
}
