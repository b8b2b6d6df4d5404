/* Rows of bytes, or of bits, times int8 weights: some rows at a time share the weights that are
 * loaded. Quads of inputs that are 0 in all of these rows are skipped.
 *
 * Weights are ordered by tile of units, quad, unit, and input of the quad.
 */
enum { MOST = 4 }; /* rows that share weights */

/* The quads of some rows: their places, then the four bytes of each row, in arrays of ``room``. */
struct found {
    int32_t *places;
    ptrdiff_t room;
    int rows, count; /* the count is a multiple of SPARE, filled up with zeros */
};

/* Bits as bytes: four of them at a time. */
static const int32_t SPREAD[16] = {
    0x00000000, 0x00000001, 0x00000100, 0x00000101, 0x00010000, 0x00010001, 0x00010100, 0x00010101,
    0x01000000, 0x01000001, 0x01000100, 0x01000101, 0x01010000, 0x01010001, 0x01010100, 0x01010101};

/* The quads of a row, and those that vectors may write. */
INLINE int quads_of(const struct layer *layer)
{
    return layer->takes == OF_BITS ? 8 * layer->inputs : (layer->inputs + 3) / 4;
}

INLINE ptrdiff_t room_of(const struct layer *layer)
{
    return quads_of(layer) + 2 * SPARE;
}

INLINE int32_t quad_at(const struct layer *layer, const uint8_t *in, int k)
{
    const int left = layer->inputs - 4 * k;
    int32_t quad = 0;
    if (layer->takes == OF_BITS)
        return SPREAD[in[k / 2] >> k % 2 * 4 & 15];
    if (left >= 4)
        memcpy(&quad, in + 4 * k, 4);
    else
        memcpy(&quad, in + 4 * k, left);
    return quad;
}

static int find(const struct layer *layer, const uint8_t *in, ptrdiff_t stride, int rows,
                struct found to)
{
    const int quads = quads_of(layer);
    int k, r, count = 0;
    for (k = 0; k < quads; k++) {
        int32_t some = 0;
        for (r = 0; r < rows; r++)
            some |= to.places[to.room * (r + 1) + count] = quad_at(layer, in + r * stride, k);
        to.places[count] = k;
        count += some != 0;
    }
    return count;
}

/* 64 bytes of a row from input k on. */
INLINE WITH_AVX512 __m512i bytes_at(const struct layer *layer, const uint8_t *in, int k)
{
    const int left = layer->inputs - k;
    if (layer->takes == OF_BITS) {
        uint32_t words[2] = {0, 0};
        memcpy(words, in + k / 8, 32 * layer->inputs - k < 64 ? 4 : 8);
        return _mm512_maskz_set1_epi8(words[0] | (uint64_t)words[1] << 32, 1);
    }
    return _mm512_maskz_loadu_epi8(left < 64 ? (1ull << left) - 1 : ~0ull, in + k);
}

static WITH_AVX512 int find_avx512(const struct layer *layer, const uint8_t *in, ptrdiff_t stride,
                                   int rows, struct found to)
{
    const int inputs = 4 * quads_of(layer);
    __m512i places = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    int k, r, count = 0;
    for (k = 0; k < inputs; k += 64) {
        __m512i bytes[MOST], any = _mm512_setzero_si512();
        int32_t *const at = to.places + count;
        __mmask16 some;
        for (r = 0; r < rows; r++) {
            bytes[r] = bytes_at(layer, in + r * stride, k);
            any = _mm512_or_si512(any, bytes[r]);
        }
        some = _mm512_test_epi32_mask(any, any);
        _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(some, places));
        for (r = 0; r < rows; r++)
            _mm512_storeu_si512(at + (r + 1) * to.room, _mm512_maskz_compress_epi32(some, bytes[r]));
        count += __builtin_popcount(some);
        places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
    }
    return count;
}

/* Fill up to a multiple of SPARE; return the count. */
INLINE int filled(struct found found)
{
    int r;
    for (; found.count % SPARE; found.count++)
        for (r = 0; r <= found.rows; r++)
            found.places[found.room * r + found.count] = 0;
    return found.count;
}

static void bytes_plain(const struct layer *layer, struct found found, const int8_t *weights,
                        int unit, int units, struct results to, int row)
{
    int j, k, i, r;
    for (r = 0; r < found.rows; r++)
        for (j = 0; j < units; j += LANES) {
            const int32_t *const bytes = found.places + found.room * (r + 1);
            int32_t sums[LANES] = {0};
            for (k = 0; k < found.count; k++) {
                const int8_t *const w = weights + 4 * ((size_t)found.places[k] * units + j);
                for (i = 0; i < 4 * LANES; i++)
                    sums[i / 4] += (bytes[k] >> 8 * (i % 4) & 255) * w[i];
            }
            finish(sums, layer, to, row + r, unit + j);
        }
}

/* ``rows`` rows (one or two) and LANES units from the place of ``weights`` in a tile of ``units``.
 *
 * vpmaddubsw adds two products in 16 bits, where ``room`` quads fit; then they are widened. */
INLINE WITH_AVX2 void bytes_lanes(const int rows, const int room, const struct layer *layer,
                                  struct found found, const int32_t *x, const int8_t *weights,
                                  int unit, int units, struct results to, int row)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[2][2], parts[2][2];
    int k, r, v, end;
    for (r = 0; r < rows; r++)
        for (v = 0; v < 2; v++)
            sums[r][v] = _mm256_setzero_si256();
    for (k = 0; k < found.count;) {
        for (r = 0; r < rows; r++)
            for (v = 0; v < 2; v++)
                parts[r][v] = _mm256_setzero_si256();
        end = found.count - k < room ? found.count : k + room;
        for (; k < end; k++) {
            const int8_t *const w = weights + 4 * (size_t)found.places[k] * units;
#pragma GCC unroll 2
            for (v = 0; v < 2; v++) {
                const __m256i weight = _mm256_loadu_si256((const __m256i *)w + v);
#pragma GCC unroll 2
                for (r = 0; r < rows; r++) {
                    const __m256i bytes = _mm256_set1_epi32(x[r * found.room + k]);
                    const __m256i pairs = _mm256_maddubs_epi16(bytes, weight);
                    parts[r][v] = _mm256_add_epi16(parts[r][v], pairs);
                }
            }
        }
        for (r = 0; r < rows; r++)
            for (v = 0; v < 2; v++)
                sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(parts[r][v], ones));
    }
    for (r = 0; r < rows; r++)
        finish_avx2(sums[r][0], sums[r][1], layer, to, row + r, unit);
}

/* Pairs of rows, then perhaps a single one. */
static WITH_AVX2 void bytes_avx2(const struct layer *layer, struct found found,
                                 const int8_t *weights, int unit, int units, struct results to,
                                 int row)
{
    const int room = layer->room;
    int j, r;
    for (r = 0; r < found.rows; r += 2) {
        const int32_t *const x = found.places + (r + 1) * found.room;
        for (j = 0; j < units; j += LANES) {
            const int8_t *const w = weights + 4 * j;
            if (found.rows == 1)
                bytes_lanes(1, room, layer, found, x, w, unit + j, units, to, row);
            else if (room == 1) /* no inner loop */
                bytes_lanes(2, 1, layer, found, x, w, unit + j, units, to, row + r);
            else
                bytes_lanes(2, room, layer, found, x, w, unit + j, units, to, row + r);
        }
    }
}

/* sums += bytes times weights. As an intrinsic, GCC 12 copies the sums and loads weights twice. */
INLINE WITH_AVX512 __m512i add_products(__m512i sums, __m512i bytes, __m512i weights)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(weights));
    return sums;
}

/* ``rows`` rows and ``vectors`` times LANES units; eight sums hide the latency of vpdpbusd. */
INLINE WITH_AVX512 void bytes_vectors(const int rows, const int vectors, const struct layer *layer,
                                      struct found found, const int8_t *weights, int unit,
                                      struct results to, int row)
{
    const int streams = rows * vectors < SPARE ? SPARE / vectors / rows : 1;
    __m512i sums[MOST][SPARE];
    int k, r, s, v;
#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (v = 0; v < SPARE; v++)
            sums[r][v] = _mm512_setzero_si512();
    for (k = 0; k < found.count; k += streams)
#pragma GCC unroll 8
        for (s = 0; s < streams; s++) {
            const int8_t *const w = weights + (size_t)found.places[k + s] * vectors * 64;
            __m512i x[MOST];
#pragma GCC unroll 4
            for (r = 0; r < rows; r++)
                x[r] = _mm512_set1_epi32(found.places[(r + 1) * found.room + k + s]);
#pragma GCC unroll 8
            for (v = 0; v < vectors; v++) {
                const __m512i weight = _mm512_loadu_si512(w + 64 * v);
                const int n = vectors * s + v;
#pragma GCC unroll 4
                for (r = 0; r < rows; r++)
                    sums[r][n] = add_products(sums[r][n], x[r], weight);
            }
        }
#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (v = 0; v < vectors; v++)
#pragma GCC unroll 8
            for (s = 1; s < streams; s++)
                sums[r][v] = _mm512_add_epi32(sums[r][v], sums[r][vectors * s + v]);
    finish_avx512(rows, vectors, SPARE, sums[0], layer, to, row, unit);
}

INLINE WITH_AVX512 void bytes_rows(const int rows, const struct layer *layer, struct found found,
                                   const int8_t *weights, int unit, int units, struct results to,
                                   int row)
{
    if (units == 4 * LANES)
        bytes_vectors(rows, 4, layer, found, weights, unit, to, row);
    else if (units == 2 * LANES)
        bytes_vectors(rows, 2, layer, found, weights, unit, to, row);
    else
        bytes_vectors(rows, 1, layer, found, weights, unit, to, row);
}

static WITH_AVX512 void bytes_avx512(const struct layer *layer, struct found found,
                                     const int8_t *weights, int unit, int units, struct results to,
                                     int row)
{
    if (found.rows == 4)
        bytes_rows(4, layer, found, weights, unit, units, to, row);
    else if (found.rows == 2)
        bytes_rows(2, layer, found, weights, unit, units, to, row);
    else
        bytes_rows(1, layer, found, weights, unit, units, to, row);
}

/* The memory that ``rows`` rows take. */
INLINE ptrdiff_t found_bytes(const struct layer *layer, int rows)
{
    return 2 * rows * room_of(layer) * 4; /* a row alone has places of its own */
}

/* Run a layer with int8 weights on at most ROWS rows. */
static void run_bytes(const struct layer *layer, int level, const uint8_t *in, ptrdiff_t stride,
                      int rows, int32_t *memory, struct results to)
{
    const int8_t *weights = layer->weights;
    struct found all[ROWS];
    int row, unit, units, most = MOST;
    for (row = 0; row < rows; row += all[row].rows) {
        const int left = rows - row;
        struct found some = {memory, room_of(layer), left < most ? left < 2 ? 1 : 2 : most, 0};
        const uint8_t *const x = in + row * stride;
        some.count = (level == AVX512 ? find_avx512 : find)(layer, x, stride, some.rows, some);
        if (!row && some.rows == MOST && some.count < quads_of(layer) / 8 * 7) {
            some.rows = most = 2; /* fewer quads are 0 in all of more rows */
            some.count = (level == AVX512 ? find_avx512 : find)(layer, x, stride, 2, some);
        }
        some.count = filled(some);
        memory += (some.rows + 1) * some.room;
        all[row] = some;
    }
    for (unit = 0; unit < layer->units; unit += units) {
        units = tile_of(layer->units - unit, layer->tile);
        for (row = 0; row < rows; row += all[row].rows)
            if (level == AVX512)
                bytes_avx512(layer, all[row], weights, unit, units, to, row);
            else if (level == AVX2)
                bytes_avx2(layer, all[row], weights, unit, units, to, row);
            else
                bytes_plain(layer, all[row], weights, unit, units, to, row);
        weights += 4 * (size_t)quads_of(layer) * units;
    }
}
