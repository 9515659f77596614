/* The kernels of simd.h at one width, for CSR and dense rows. Defined by who includes this:

     WIDTH             of a vector, in doubles
     VEC               its type
     TARGET            attribute of functions that use it
     PART, PUT_PART    load and store the first n numbers at p, 1 <= n <= WIDTH */

static INLINE TARGET VEC AT(load)(const double *p) { VEC v; memcpy(&v, p, sizeof v); return v; }

static INLINE TARGET void AT(store)(double *p, VEC v) { memcpy(p, &v, sizeof v); }

/* s_l = <w_l, x> for `count` classes, (vectors - 1) WIDTH < count <= vectors WIDTH. */
static INLINE TARGET void AT(scores_of)(const void *data, int kind, const void *index, int bytes, ptrdiff_t n,
                                        const double *W, ptrdiff_t k, int vectors, ptrdiff_t count, double *s)
{
    VEC sum[MOST];
    const int last = vectors - 1;
    const ptrdiff_t rest = count - last * WIDTH;
    UNROLL
    for (int g = 0; g < vectors; g++) sum[g] = (VEC){0};
    for (ptrdiff_t p = 0; p < n; p++) {
        const double v = VALUE_AT(data, kind, p, n);
        const double *w = W + FEATURE_AT(index, bytes, p) * k;
        UNROLL
        for (int g = 0; g < last; g++) sum[g] += v * AT(load)(w + g * WIDTH);
        sum[last] += v * PART(w + last * WIDTH, rest);
    }
    UNROLL
    for (int g = 0; g < last; g++) AT(store)(s + g * WIDTH, sum[g]);
    PUT_PART(s + last * WIDTH, rest, sum[last]);
}

/* w_l += delta_l x for as many. */
static INLINE TARGET void AT(update_of)(const void *data, int kind, const void *index, int bytes, ptrdiff_t n,
                                        const double *delta, double *W, ptrdiff_t k, int vectors, ptrdiff_t count)
{
    VEC d[MOST];
    const int last = vectors - 1;
    const ptrdiff_t rest = count - last * WIDTH;
    UNROLL
    for (int g = 0; g < last; g++) d[g] = AT(load)(delta + g * WIDTH);
    d[last] = PART(delta + last * WIDTH, rest);
    for (ptrdiff_t p = 0; p < n; p++) {
        const double v = VALUE_AT(data, kind, p, n);
        double *w = W + FEATURE_AT(index, bytes, p) * k;
        UNROLL
        for (int g = 0; g < last; g++) AT(store)(w + g * WIDTH, AT(load)(w + g * WIDTH) + v * d[g]);
        PUT_PART(w + last * WIDTH, rest, PART(w + last * WIDTH, rest) + v * d[last]);
    }
}

#define SCORES(vectors) AT(scores_of)(data, kind, features, bytes, n, W + l, k, vectors, count, s + l)
#define UPDATE(vectors) AT(update_of)(data, kind, features, bytes, n, delta + l, W + l, k, vectors, count)

#define KERNELS(name, kind_, bytes_) \
    static TARGET void AT(name##_scores)(const void *data, const void *features, ptrdiff_t n, const double *W, \
                                         ptrdiff_t k, double *s) \
    { \
        const int kind = kind_, bytes = bytes_; \
        BY_VECTORS(SCORES) \
    } \
    static TARGET void AT(name##_update)(const void *data, const void *features, ptrdiff_t n, const double *delta, \
                                         double *W, ptrdiff_t k) \
    { \
        const int kind = kind_, bytes = bytes_; \
        BY_VECTORS(UPDATE) \
    }

KERNELS(csr64, DOUBLES, 4)
KERNELS(csr32, FLOATS, 4)
KERNELS(narrow64, DOUBLES, 2)
KERNELS(narrow32, FLOATS, 2)
KERNELS(equal64, EQUALS, 4)
KERNELS(dense64, DOUBLES, 0)
KERNELS(dense32, FLOATS, 0)

#define AXPY(name, number) \
    static TARGET void AT(name)(const void *row, ptrdiff_t n, double a, double *w) \
    { \
        const number *ML_RESTRICT value = (const number *)row; \
        double *ML_RESTRICT sum = w; \
        for (ptrdiff_t p = 0; p < n; p++) sum[p] += a * value[p]; \
    }

AXPY(axpy64, double)
AXPY(axpy32, float)

static const kernels_t AT(kernels) = {
    WIDTH,
    {AT(csr64_scores), AT(csr32_scores), AT(narrow64_scores), AT(narrow32_scores), AT(equal64_scores),
     AT(dense64_scores), AT(dense32_scores)},
    {AT(csr64_update), AT(csr32_update), AT(narrow64_update), AT(narrow32_update), AT(equal64_update),
     AT(dense64_update), AT(dense32_update)},
    {AT(axpy64), AT(axpy32)},
};

#undef KERNELS
#undef AXPY
#undef SCORES
#undef UPDATE
#undef WIDTH
#undef VEC
#undef TARGET
#undef PART
#undef PUT_PART
