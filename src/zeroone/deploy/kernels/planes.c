/* Rows of bits times weights of -1, 0 and 1, or of -1 and 1: 32 inputs of a unit at a time.
 *
 * P and N are the bits of a unit's weights above and below 0. Inputs x choose between them: the
 * bits of (x ? P : N) number as many as those of x & P, less those of x & N, plus those of N. The
 * last are constant; kernel.py adds them to the limits. Where no weight is 0, N is ~P.
 *
 * Weights are ordered by tile of units, word, plane (P, then N if there are two), and unit.
 */
static void planes_plain(const struct layer *layer, const uint32_t *in, const uint32_t *weights,
                         int unit, int units, struct results to, int row)
{
    int j, k, u;
    for (u = 0; u < units; u += LANES) {
        int32_t sums[LANES] = {0};
        for (k = 0; k < layer->inputs; k++)
            for (j = 0; j < LANES; j++) {
                const uint32_t *const w = weights + (size_t)k * layer->planes * units + u + j;
                const uint32_t above = *w, below = layer->planes == 2 ? w[units] : ~above;
                sums[j] += __builtin_popcount((in[k] & above) | (~in[k] & below));
            }
        finish(sums, layer, to, row, unit + u);
    }
}

/* Count the bits of each byte, by looking up halves. */
INLINE WITH_AVX2 __m256i bits_of_bytes(__m256i x)
{
    const __m256i counts =
        _mm256_broadcastsi128_si256(_mm_set_epi8(4, 3, 3, 2, 3, 2, 2, 1, 3, 2, 2, 1, 2, 1, 1, 0));
    const __m256i half = _mm256_set1_epi8(15);
    const __m256i low = _mm256_shuffle_epi8(counts, _mm256_and_si256(x, half));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
    return _mm256_add_epi8(low, _mm256_shuffle_epi8(counts, high));
}

INLINE WITH_AVX2 void planes_lanes(const int planes, const struct layer *layer, const uint32_t *in,
                                   const uint32_t *weights, int unit, int units, struct results to,
                                   int row)
{
    const int most = 31; /* words whose counts fit in a byte */
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    int k, v, end;
    for (k = 0; k < layer->inputs;) {
        __m256i parts[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        end = layer->inputs - k < most ? layer->inputs : k + most;
        for (; k < end; k++) {
            const __m256i x = _mm256_set1_epi32((int)in[k]);
            const uint32_t *const w = weights + (size_t)k * planes * units;
            for (v = 0; v < 2; v++) {
                const __m256i above = _mm256_loadu_si256((const __m256i *)(w + 8 * v));
                __m256i chosen;
                if (planes == 2) {
                    const __m256i below = _mm256_loadu_si256((const __m256i *)(w + units + 8 * v));
                    chosen = _mm256_or_si256(_mm256_and_si256(x, above),
                                             _mm256_andnot_si256(x, below));
                } else {
                    chosen = _mm256_xor_si256(_mm256_xor_si256(x, above), _mm256_set1_epi8(-1));
                }
                parts[v] = _mm256_add_epi8(parts[v], bits_of_bytes(chosen));
            }
        }
        for (v = 0; v < 2; v++) {
            const __m256i pairs = _mm256_maddubs_epi16(parts[v], _mm256_set1_epi8(1));
            sums[v] =
                _mm256_add_epi32(sums[v], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
    finish_avx2(sums[0], sums[1], layer, to, row, unit);
}

static WITH_AVX2 void planes_avx2(const struct layer *layer, const uint32_t *in,
                                  const uint32_t *weights, int unit, int units, struct results to,
                                  int row)
{
    int u;
    for (u = 0; u < units; u += LANES)
        if (layer->planes == 2)
            planes_lanes(2, layer, in, weights + u, unit + u, units, to, row);
        else
            planes_lanes(1, layer, in, weights + u, unit + u, units, to, row);
}

/* ``rows`` rows and ``vectors`` times LANES units, whose sums stay in registers. */
INLINE WITH_AVX512 void planes_block(const int rows, const int vectors, const int planes,
                                     const struct layer *layer, const uint32_t *in,
                                     ptrdiff_t stride, const uint32_t *weights, int unit,
                                     struct results to, int row)
{
    __m512i sums[4][4];
    int k, r, v;
#pragma GCC unroll 4
    for (r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (v = 0; v < vectors; v++)
            sums[r][v] = _mm512_setzero_si512();
    for (k = 0; k < layer->inputs; k++, weights += planes * vectors * LANES) {
        __m512i above[4], below[4];
#pragma GCC unroll 4
        for (v = 0; v < vectors; v++) {
            above[v] = _mm512_loadu_si512(weights + LANES * v);
            below[v] = planes == 2 ? _mm512_loadu_si512(weights + LANES * (vectors + v)) : above[v];
        }
#pragma GCC unroll 4
        for (r = 0; r < rows; r++) {
            const __m512i x = _mm512_set1_epi32((int)in[r * stride + k]);
#pragma GCC unroll 4
            for (v = 0; v < vectors; v++) {
                const __m512i chosen =
                    planes == 2 ? _mm512_ternarylogic_epi32(x, above[v], below[v], 0xCA)
                                : _mm512_ternarylogic_epi32(x, above[v], above[v], 0xC3);
                sums[r][v] = _mm512_add_epi32(sums[r][v], _mm512_popcnt_epi32(chosen));
            }
        }
    }
    finish_avx512(rows, vectors, 4, sums[0], layer, to, row, unit);
}

INLINE WITH_AVX512 void planes_tile(const int vectors, const int planes, const struct layer *layer,
                                    const uint32_t *in, ptrdiff_t stride, const uint32_t *weights,
                                    int unit, struct results to, int rows)
{
    int row;
    for (row = 0; row + 4 <= rows; row += 4)
        planes_block(4, vectors, planes, layer, in + row * stride, stride, weights, unit, to, row);
    for (; row < rows; row++)
        planes_block(1, vectors, planes, layer, in + row * stride, stride, weights, unit, to, row);
}

static WITH_AVX512 void planes_avx512(const struct layer *layer, const uint32_t *in,
                                      ptrdiff_t stride, const uint32_t *weights, int unit,
                                      int units, struct results to, int rows)
{
    switch (units / LANES * 2 + layer->planes) {
    case 10: planes_tile(4, 2, layer, in, stride, weights, unit, to, rows); break;
    case 9: planes_tile(4, 1, layer, in, stride, weights, unit, to, rows); break;
    case 6: planes_tile(2, 2, layer, in, stride, weights, unit, to, rows); break;
    case 5: planes_tile(2, 1, layer, in, stride, weights, unit, to, rows); break;
    case 4: planes_tile(1, 2, layer, in, stride, weights, unit, to, rows); break;
    default: planes_tile(1, 1, layer, in, stride, weights, unit, to, rows);
    }
}

/* Run a layer with weights of few bits on rows of words; ``stride`` is in words. */
static void run_planes(const struct layer *layer, int level, const uint32_t *in, ptrdiff_t stride,
                       int rows, struct results to)
{
    const uint32_t *weights = layer->weights;
    int row, unit, units;
    for (unit = 0; unit < layer->units; unit += units) {
        units = tile_of(layer->units - unit, layer->tile);
        if (level == AVX512)
            planes_avx512(layer, in, stride, weights, unit, units, to, rows);
        else
            for (row = 0; row < rows; row++)
                if (level == AVX2)
                    planes_avx2(layer, in + row * stride, weights, unit, units, to, row);
                else
                    planes_plain(layer, in + row * stride, weights, unit, units, to, row);
        weights += (size_t)layer->inputs * layer->planes * units;
    }
}
