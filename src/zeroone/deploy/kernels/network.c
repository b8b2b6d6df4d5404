/* A whole network, from bytes to scores and labels. */

/* Half words of bits that a row of results takes: whole words. */
INLINE int halves(const struct layer *layer)
{
    return (layer->bits + 31) / 32 * 2;
}

INLINE int positions(const struct layer *layer)
{
    return layer->kernel ? layer->rows * layer->columns : 1;
}

INLINE ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b)
{
    return a > b ? a : b;
}

/* The bytes of a row, and of a sample's bits. */
INLINE ptrdiff_t row_bytes(const struct layer *layer)
{
    return (ptrdiff_t)layer->inputs * (layer->takes == OF_BITS ? 4 : 1);
}

INLINE ptrdiff_t sample_bytes(const struct layer *layer)
{
    const int window = layer->kernel ? layer->window : 1;
    const int pooled = layer->kernel ? layer->rows / window * (layer->columns / window) : 1;
    return (ptrdiff_t)pooled * halves(layer) * 2;
}

/* The slices that a hidden layer writes; one that is 0 follows. */
INLINE ptrdiff_t slices_of(const struct slices *layer)
{
    return (ptrdiff_t)layer->each * layer->apart;
}

/* Scratch memory, one part after another; each has the size that the largest layer needs. */
struct memory {
    ptrdiff_t taken, found, patches, whole, bits, scores, inputs, units, total;
};

static struct memory plan(const struct network *network, int samples)
{
    struct memory parts = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    int i;
    if (network->taken)
        parts.taken = (ptrdiff_t)samples * network->inputs + 64;
    for (i = 0; i < network->n_layers; i++) {
        const struct layer *const layer = network->layers + i;
        const ptrdiff_t all = layer->kernel ? positions(layer) : samples;
        const ptrdiff_t rows = all < ROWS ? all : ROWS;
        if (!layer->planes)
            parts.found = larger(parts.found, found_bytes(layer, rows));
        if (layer->kernel) {
            parts.patches = larger(parts.patches, rows * row_bytes(layer));
            parts.whole = larger(parts.whole, (ptrdiff_t)positions(layer) * halves(layer) * 2);
        }
        parts.bits = larger(parts.bits, samples * sample_bytes(layer));
        parts.scores = (ptrdiff_t)samples * layer->units * 4;
    }
    if (network->slices && samples >= network->least_sliced) {
        parts.inputs = (ptrdiff_t)network->slices->steps * network->slices->bytes;
        for (i = 0; i < network->n_layers - 1; i++)
            parts.units = larger(parts.units, (slices_of(network->slices + i) + 1) *
                                                  (ptrdiff_t)sizeof(plane));
    }
    /* Parts begin at multiples of 64 bytes. */
    parts.taken = (parts.taken + 63) / 64 * 64;
    parts.found = (parts.found + 63) / 64 * 64;
    parts.patches = (parts.patches + 63) / 64 * 64;
    parts.whole = (parts.whole + 63) / 64 * 64;
    parts.bits = (parts.bits + 63) / 64 * 64;
    parts.scores = (parts.scores + 63) / 64 * 64;
    parts.inputs = (parts.inputs + 63) / 64 * 64;
    parts.units = (parts.units + 63) / 64 * 64;
    parts.total = parts.taken + parts.found + parts.patches + parts.whole + 2 * parts.bits +
                  parts.scores + parts.inputs + 2 * parts.units + 64;
    return parts;
}

/* The memory that one sample takes (``samples`` is 1), or many. */
ptrdiff_t memory_bytes(const struct network *network, int samples)
{
    return plan(network, samples < network->most ? samples : network->most).total;
}

/* Copy the features in use to the beginning of ``to``, which vectors write 64 bytes at a time. */
static void take(const struct network *network, const uint8_t *in, uint8_t *to)
{
    int k;
    for (k = 0; k < network->features; k += 64) {
        uint64_t left = network->taken[k / 64];
        for (; left; left &= left - 1)
            *to++ = in[k + __builtin_ctzll(left)] >> network->shift;
    }
}

static WITH_AVX512 void take_avx512(const struct network *network, const uint8_t *in, uint8_t *to)
{
    const __m128i shift = _mm_cvtsi32_si128(network->shift);
    const __m512i mask = _mm512_set1_epi8((char)(255 >> network->shift));
    int k;
    for (k = 0; k < network->features; k += 64) {
        const __mmask64 some = network->taken[k / 64];
        const __m512i whole = _mm512_maskz_loadu_epi8(some, in + k);
        const __m512i bytes = _mm512_and_si512(_mm512_srl_epi16(whole, shift), mask);
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(some, bytes));
        to += __builtin_popcountll(some);
    }
}

/* Run a layer on at most ROWS rows. */
static void run_rows(const struct layer *layer, int level, const uint8_t *in, ptrdiff_t stride,
                     int rows, int32_t *found, struct results to)
{
    int row;
    if (layer->planes)
        run_planes(layer, level, (const uint32_t *)in, stride / 4, rows, to);
    else if (layer->takes == OF_BITS && level == AVX2 && rows >= LEAST_OF_TABLES)
        run_tables(layer, (const uint32_t *)in, stride / 4, rows, to);
    else
        run_bytes(layer, level, in, stride, rows, found, to);
    if (!to.scores && layer->bits / LANES % 2) /* the other half of the last word */
        for (row = 0; row < rows; row++)
            to.bits[row * to.stride + layer->bits / LANES] = 0;
}

/* Copy what a kernel sees at one position; there are zeros around an image. */
static void take_patch(const struct layer *layer, const uint8_t *image, int y, int x, uint8_t *to)
{
    const int left = x < 0 ? -x : 0, beyond = x + layer->kernel - layer->width;
    const int right = beyond > 0 ? beyond : 0, pixel = layer->pixel;
    const ptrdiff_t line = (ptrdiff_t)layer->width * pixel;
    const size_t wide = (size_t)layer->kernel * pixel;
    int plane, row;
    for (plane = 0; plane < layer->depth; plane++)
        for (row = y; row < y + layer->kernel; row++, to += wide) {
            const uint8_t *const from = image + (plane * layer->height + row) * line;
            if (row < 0 || row >= layer->height || left + right >= layer->kernel)
                memset(to, 0, wide);
            else if (left || right) {
                memset(to, 0, wide);
                memcpy(to + left * pixel, from + (ptrdiff_t)(x + left) * pixel,
                       wide - (size_t)(left + right) * pixel);
            } else
                memcpy(to, from + (ptrdiff_t)x * pixel, wide);
        }
}

/* Take the largest bits of each window. */
static void pool(const struct layer *layer, const uint16_t *whole, uint16_t *to)
{
    const int window = layer->window, width = halves(layer);
    int y, x, i, j, h;
    for (y = 0; y < layer->rows / window; y++)
        for (x = 0; x < layer->columns / window; x++, to += width) {
            memset(to, 0, sizeof *to * width);
            for (i = 0; i < window; i++)
                for (j = 0; j < window; j++) {
                    const ptrdiff_t at = (ptrdiff_t)(y * window + i) * layer->columns;
                    const uint16_t *const from = whole + (at + x * window + j) * width;
                    for (h = 0; h < width; h++)
                        to[h] |= from[h];
                }
        }
}

/* Run a convolution on one sample; ``whole`` holds the bits before pooling. */
static void run_convolution(const struct layer *layer, int level, const uint8_t *image,
                            int32_t *found, uint8_t *patches, uint16_t *whole, uint16_t *to)
{
    const int all = positions(layer), width = halves(layer);
    const ptrdiff_t size = row_bytes(layer);
    uint16_t *const bits = layer->window > 1 ? whole : to;
    struct layer here = *layer; /* with the limits of some positions */
    int first, rows, k;
    for (first = 0; first < all; first += rows) {
        const struct results part = {bits + (ptrdiff_t)first * width, 0, width};
        rows = all - first < ROWS ? all - first : ROWS;
        if (layer->starts) {
            here.limits = layer->limits + layer->starts[first];
            for (k = 1; k < rows && layer->starts[first + k] == layer->starts[first]; k++)
                ;
            rows = k;
        }
        for (k = 0; k < rows; k++) {
            const int y = (first + k) / layer->columns, x = (first + k) % layer->columns;
            take_patch(layer, image, y * layer->stride - layer->padding,
                       x * layer->stride - layer->padding, patches + k * size);
        }
        run_rows(&here, level, patches, size, rows, found, part);
    }
    if (layer->window > 1)
        pool(layer, whole, to);
}

/* Where the parts of the memory begin. */
struct places {
    uint8_t *taken, *found, *patches, *whole, *bits[2], *inputs, *units[2];
    int32_t *sums;
};

static struct places places_in(void *memory, struct memory parts)
{
    struct places to;
    to.taken = (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    to.found = to.taken + parts.taken;
    to.patches = to.found + parts.found;
    to.whole = to.patches + parts.patches;
    to.bits[0] = to.whole + parts.whole;
    to.bits[1] = to.bits[0] + parts.bits;
    to.sums = (int32_t *)(to.bits[1] + parts.bits);
    to.inputs = to.bits[1] + parts.bits + parts.scores;
    to.units[0] = to.inputs + parts.inputs;
    to.units[1] = to.units[0] + parts.units;
    return to;
}

/* Run all layers, on samples whose inputs in use are taken. */
static void run_layers(const struct network *network, const uint8_t *in, int samples,
                       struct places at)
{
    ptrdiff_t stride = network->inputs;
    int i, s;
    for (i = 0; i < network->n_layers; i++) {
        const struct layer *const layer = network->layers + i;
        const int last = i == network->n_layers - 1;
        uint16_t *const out = (uint16_t *)at.bits[i % 2];
        const struct results to = {out, last ? at.sums : 0, last ? layer->units : halves(layer)};
        if (layer->kernel)
            for (s = 0; s < samples; s++)
                run_convolution(layer, network->level, in + s * stride, (int32_t *)at.found,
                                at.patches, (uint16_t *)at.whole,
                                out + s * sample_bytes(layer) / 2);
        else
            run_rows(layer, network->level, in, stride, samples, (int32_t *)at.found, to);
        in = (const uint8_t *)out;
        stride = sample_bytes(layer);
    }
}

/* Run hidden layers by slices, and the last one if labels are wanted only, and it has slices;
 * otherwise it takes rows of bits. Return whether there are labels. */
static int run_slices(const struct network *network, const uint8_t *in, int samples,
                      struct places at, int32_t *labels)
{
    const struct slices *const classes = network->slices + network->n_layers - 1;
    const struct layer *const last = network->layers + network->n_layers - 1;
    const struct results to = {0, at.sums, last->units};
    const uint8_t *from = at.inputs;
    ptrdiff_t all = 0;
    int i;
    slice(network, in, samples, at.inputs);
    for (i = 0; i < network->n_layers - 1; i++) {
        const struct slices *const layer = network->slices + i;
        plane *const out = (plane *)at.units[i % 2];
        all = slices_of(layer);
        memset(out, 0, (all + 1) * sizeof *out);
        if (layer->planes == 2)
            count_pairs_avx512(layer, from, out);
        else
            (network->level == AVX512 ? count_avx512 : network->level == AVX2 ? count_avx2
                                                                              : count_plain)(
                layer, from, out);
        from = (const uint8_t *)out;
    }
    if (labels && classes->units) {
        plane bits[MOST_OF_LABEL] = {{0}};
        (network->level == AVX512 ? labels_avx512 : network->level == AVX2 ? labels_avx2
                                                                           : labels_plain)(
            classes, from, bits);
        write_labels(bits, network->classes, samples, labels);
        return 1;
    }
    unslice(network->level, (const uint64_t *)from, (int)all, last->inputs, samples,
            (uint32_t *)at.bits[0]);
    run_rows(last, network->level, at.bits[0], 4 * (ptrdiff_t)last->inputs, samples,
             (int32_t *)at.found, to);
    return 0;
}

/* Run at most ``most`` samples; ``scores`` or ``labels`` may be missing. */
static void run_some(const struct network *network, const uint8_t *in, int samples, void *memory,
                     int32_t *scores, int32_t *labels)
{
    const struct places at = places_in(memory, plan(network, samples));
    const ptrdiff_t width = network->layers[network->n_layers - 1].units;
    int s, j;
    if (network->slices && samples >= network->least_sliced) {
        if (run_slices(network, in, samples, at, scores ? 0 : labels))
            return;
    } else {
        if (network->taken) {
            for (s = 0; s < samples; s++)
                (network->level == AVX512 ? take_avx512 : take)(
                    network, in + (ptrdiff_t)s * network->features,
                    at.taken + s * (ptrdiff_t)network->inputs);
            in = at.taken;
        }
        run_layers(network, in, samples, at);
    }
    for (s = 0; s < samples; s++) {
        const int32_t *const row = at.sums + s * width;
        int32_t most = row[0], best = 0;
        for (j = 1; j < network->classes; j++) {
            best = row[j] > most ? j : best;
            most = row[j] > most ? row[j] : most;
        }
        if (labels)
            labels[s] = best;
        if (scores)
            memcpy(scores + (ptrdiff_t)s * network->classes, row, sizeof *row * network->classes);
    }
}

/* Compute the scores, or the leading classes (the first of several), of any number of samples.
 *
 * ``memory`` has memory_bytes bytes.
 */
void run_network(const struct network *network, const uint8_t *in, ptrdiff_t samples, void *memory,
                 int32_t *scores, int32_t *labels)
{
    ptrdiff_t first;
    for (first = 0; first < samples; first += network->most) {
        const ptrdiff_t left = samples - first;
        run_some(network, in + first * network->features,
                 left < network->most ? (int)left : network->most, memory,
                 scores ? scores + first * network->classes : 0, labels ? labels + first : 0);
    }
}

/* Return the leading class of one sample. */
int leading_class(const struct network *network, const uint8_t *in, void *memory)
{
    int32_t label;
    run_some(network, in, 1, memory, 0, &label);
    return label;
}
