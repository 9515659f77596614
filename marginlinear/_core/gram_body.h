/* The parts of gram.h at one width. Defined by who includes this: WIDTH of a vector, in doubles, and TARGET, the
   attribute of functions that use it. */

typedef double AT(numbers) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef float AT(singles) __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int64_t AT(bits) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
#define NUMBERS AT(numbers)
#define BITS AT(bits)
#define PARTS (ML_LANES / WIDTH)
#define SPLAT(value) ((NUMBERS){0} + (value))

/* e^x for x <= 0, from x = n ln 2 + r, |r| <= ln 2/2; 0 below -708. By the Taylor series of e^r, within 1.1 ulp; for
   `single` numbers by a polynomial within 4e-9. */
static INLINE TARGET NUMBERS AT(exponential)(NUMBERS x, int single)
{
    /* The sum with it has the nearest integer in its last bits. */
    const double shift = 0x1.8p52;
    const BITS there = x >= -708.0;
    x = (NUMBERS)((BITS)x & there);
    const NUMBERS shifted = x * 0x1.71547652b82fep0 + shift;
    const NUMBERS n = shifted - shift;
    const NUMBERS r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;
    /* q = (e^r - 1 - r)/r^2, by parts: short chains of operations that wait for each other. */
    const NUMBERS r2 = r * r, r4 = r2 * r2;
    NUMBERS q;
    if (single) {
        q = (0x1.fffffb9a5681ap-2 + r * 0x1.555491540ffb8p-3) + r2 * (0x1.5558f17dba59bp-5 + r * 0x1.1239e2abd7e1cp-7)
            + r4 * 0x1.6a24341db7287p-10;
    } else {
        const NUMBERS low = (0.5 + r * (1.0 / 6.0)) + r2 * (1.0 / 24.0 + r * (1.0 / 120.0));
        const NUMBERS middle = (1.0 / 720.0 + r * (1.0 / 5040.0)) + r2 * (1.0 / 40320.0 + r * (1.0 / 362880.0));
        const NUMBERS high = (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
            + r2 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0));
        q = low + r4 * (middle + r4 * high);
    }
    const NUMBERS e = 1.0 + (r + r2 * q);
    return (NUMBERS)(((BITS)e + ((BITS)shifted << 52)) & there);
}

static INLINE TARGET NUMBERS AT(value)(const ml_kernel_t *kernel, int kind, int single, NUMBERS product, double left,
                                       NUMBERS right)
{
    if (kind == ML_LINEAR) return product;
    if (kind == ML_RBF) {
        const NUMBERS distance = (right + left) - 2.0 * product;
        /* Rounding can leave it below 0. */
        return AT(exponential)(-kernel->gamma * (NUMBERS)((BITS)distance & (distance > 0.0)), single);
    }
    NUMBERS z = product * kernel->gamma + kernel->coef0;
    if (kind == ML_SIGMOID) {
        /* tanh z, with the sign of z */
        const NUMBERS e = AT(exponential)(-2.0 * (NUMBERS)((BITS)z & INT64_MAX), single);
        return (NUMBERS)((BITS)((1.0 - e) / (1.0 + e)) | ((BITS)z & INT64_MIN));
    }
    NUMBERS power = SPLAT(1.0);
    for (int d = kernel->degree; d; d >>= 1) {
        if (d & 1) power *= z;
        if (d > 1) z *= z;
    }
    return power;
}

static INLINE TARGET void AT(values_of)(const ml_kernel_t *kernel, int kind, int single, const double *products,
                                        double left, const double *right, ptrdiff_t count, void *out)
{
    for (ptrdiff_t j = 0; j < count; j += WIDTH) {
        const NUMBERS value = kernel->offset + AT(value)(kernel, kind, single, *(const NUMBERS *)(products + j), left,
                                                         *(const NUMBERS *)(right + j));
        if (single)
            *(AT(singles) *)((float *)out + j) = __builtin_convertvector(value, AT(singles));
        else
            *(NUMBERS *)((double *)out + j) = value;
    }
}

#define VALUES(name, single) \
    static TARGET void AT(name)(const ml_kernel_t *kernel, const double *products, double left, const double *right, \
                                ptrdiff_t count, void *out) \
    { \
        switch (kernel->kind) { \
        case ML_LINEAR: AT(values_of)(kernel, ML_LINEAR, single, products, left, right, count, out); break; \
        case ML_POLY: AT(values_of)(kernel, ML_POLY, single, products, left, right, count, out); break; \
        case ML_RBF: AT(values_of)(kernel, ML_RBF, single, products, left, right, count, out); break; \
        default: AT(values_of)(kernel, ML_SIGMOID, single, products, left, right, count, out); \
        } \
    }

VALUES(values64, 0)
VALUES(values32, 1)

/* sums += the product of the lanes with value p. */
static INLINE TARGET void AT(add)(NUMBERS *sums, const void *data, int single, const void *index, int bytes, int64_t p,
                                  const double *lanes)
{
    const double v = single ? ((const float *)data)[p] : ((const double *)data)[p];
    const NUMBERS *lane = (const NUMBERS *)(lanes + ML_LANES * (ptrdiff_t)FEATURE_AT(index, bytes, p));
    UNROLL
    for (int g = 0; g < PARTS; g++) sums[g] += v * lane[g];
}

/* Two rows at a time, as the additions of one would wait for each other. */
static INLINE TARGET void AT(sparse_of)(const void *data, int single, const void *index, int bytes,
                                        const int64_t *begin, ptrdiff_t count, const double *lanes, double *products)
{
    for (ptrdiff_t j = 0; j < count; j += 2) {
        NUMBERS first[PARTS], second[PARTS];
        const int64_t end = begin[j + 1], last = begin[j + 1 + (j + 1 < count)];
        int64_t p = begin[j], q = end;
        UNROLL
        for (int g = 0; g < PARTS; g++) first[g] = second[g] = SPLAT(0.0);
        for (; p < end && q < last; p++, q++) {
            AT(add)(first, data, single, index, bytes, p, lanes);
            AT(add)(second, data, single, index, bytes, q, lanes);
        }
        for (; p < end; p++) AT(add)(first, data, single, index, bytes, p, lanes);
        for (; q < last; q++) AT(add)(second, data, single, index, bytes, q, lanes);
        for (int lane = 0; lane < ML_LANES; lane++) {
            products[lane * ML_BLOCK + j] = ((const double *)first)[lane];
            if (j + 1 < count) products[lane * ML_BLOCK + j + 1] = ((const double *)second)[lane];
        }
    }
}

#define SPARSE(name, single, bytes) \
    static TARGET void AT(name)(const void *data, const void *index, const int64_t *begin, ptrdiff_t count, \
                                const double *lanes, double *products) \
    { \
        AT(sparse_of)(data, single, index, bytes, begin, count, lanes, products); \
    }

SPARSE(csr64, 0, 4)
SPARSE(csr32, 1, 4)
SPARSE(narrow64, 0, 2)
SPARSE(narrow32, 1, 2)

/* As many lanes at a time as their sums stay in registers. */
static TARGET void AT(dense)(const double *panels, ptrdiff_t n, ptrdiff_t count, const double *lanes, double *products)
{
    enum { HALF = WIDTH == ML_LANES ? ML_LANES : ML_LANES / 2 };
    for (ptrdiff_t j = 0; j < count; j += ML_LANES, panels += ML_LANES * n)
        for (int from = 0; from < ML_LANES; from += HALF) {
            NUMBERS sum[HALF][PARTS];
            UNROLL
            for (int lane = 0; lane < HALF; lane++)
                UNROLL
                for (int g = 0; g < PARTS; g++) sum[lane][g] = SPLAT(0.0);
            for (ptrdiff_t p = 0; p < n; p++) {
                const NUMBERS *right = (const NUMBERS *)(panels + ML_LANES * p);
                const double *left = lanes + ML_LANES * p + from;
                UNROLL
                for (int lane = 0; lane < HALF; lane++)
                    UNROLL
                    for (int g = 0; g < PARTS; g++) sum[lane][g] += left[lane] * right[g];
            }
            for (int lane = 0; lane < HALF; lane++)
                memcpy(products + (from + lane) * ML_BLOCK + j, sum[lane], sizeof sum[lane]);
        }
}

static const ml_gram_t AT(gram) = {
    WIDTH, {AT(csr64), AT(csr32), AT(narrow64), AT(narrow32)}, AT(dense),
    {AT(values64), AT(values32)},
};

#undef NUMBERS
#undef BITS
#undef PARTS
#undef SPLAT
#undef SPARSE
#undef VALUES
#undef WIDTH
#undef TARGET
