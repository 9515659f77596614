/* The inner kernel of cholesky.pyx: an 8 x 8 tile of A'B, A and B panels of n rows of 8 numbers.

On x86-64 it is compiled for baseline, AVX2 and AVX-512, and the processor chooses. Each compilation adds the n products
of an element in their order, so that the bits depend on the processor at most, never on threads. */

#ifndef ML_TILE_H
#define ML_TILE_H

#include <string.h>

#define ML_PANEL 8

#if defined(__GNUC__)

#define ML_TILE(NAME, TARGET, LANES, ROWS)                                                                            \
    TARGET static void NAME(const double *a, const double *b, Py_ssize_t n, double *out) {                            \
        typedef double vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                         \
        enum { PARTS = ML_PANEL / LANES };                                                                            \
        for (int from = 0; from < ML_PANEL; from += ROWS) {                                                           \
            vector sum[ROWS][PARTS];                                                                                  \
            memset(sum, 0, sizeof sum);                                                                               \
            for (Py_ssize_t r = 0; r < n; ++r) {                                                                      \
                const vector *right = (const vector *)(b + ML_PANEL * r);                                             \
                const double *left = a + ML_PANEL * r + from;                                                         \
                for (int p = 0; p < ROWS; ++p)                                                                        \
                    for (int q = 0; q < PARTS; ++q)                                                                   \
                        sum[p][q] += left[p] * right[q];                                                              \
            }                                                                                                         \
            memcpy(out + ML_PANEL * from, sum, sizeof sum);                                                           \
        }                                                                                                             \
    }

#if defined(__x86_64__)
ML_TILE(ml_tile_baseline, , 2, 2)
ML_TILE(ml_tile_avx2, __attribute__((target("avx2,fma"))), 4, 4)
ML_TILE(ml_tile_avx512, __attribute__((target("avx512f"))), 8, 8)

static inline void ml_tile(const double *a, const double *b, Py_ssize_t n, double *out) {
    if (__builtin_cpu_supports("avx512f"))
        ml_tile_avx512(a, b, n, out);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        ml_tile_avx2(a, b, n, out);
    else
        ml_tile_baseline(a, b, n, out);
}
#else
ML_TILE(ml_tile, , 2, 4)
#endif

#else

static inline void ml_tile(const double *a, const double *b, Py_ssize_t n, double *out) {
    memset(out, 0, ML_PANEL * ML_PANEL * sizeof(double));
    for (Py_ssize_t r = 0; r < n; ++r)
        for (int p = 0; p < ML_PANEL; ++p)
            for (int q = 0; q < ML_PANEL; ++q)
                out[ML_PANEL * p + q] += a[ML_PANEL * r + p] * b[ML_PANEL * r + q];
}

#endif
#endif
