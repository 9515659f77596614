/* sums_l += c_l row for several l, in vectors as wide as the processor has them.

   No product is fused with a sum (setup.py): the same bits on every machine. */

#ifndef ML_SPREAD_H
#define ML_SPREAD_H

#include <stddef.h>

typedef void (*ml_spread_f)(const float *row, ptrdiff_t n, const double *c, double *const *sums, ptrdiff_t count);

#if defined(__GNUC__)
#define SPREAD_INLINE inline __attribute__((always_inline))
#define SPREAD_RESTRICT __restrict__
#else
#define SPREAD_INLINE
#define SPREAD_RESTRICT
#endif

static SPREAD_INLINE void ml_spread_by(const float *row, ptrdiff_t n, const double *c, double *const *sums,
                                       ptrdiff_t count)
{
    for (; count >= 2; count -= 2, c += 2, sums += 2) {
        double *SPREAD_RESTRICT a = sums[0], *SPREAD_RESTRICT b = sums[1];
        const double p = c[0], q = c[1];
        for (ptrdiff_t j = 0; j < n; j++) {
            a[j] += p * row[j];
            b[j] += q * row[j];
        }
    }
    if (count) {
        double *SPREAD_RESTRICT a = sums[0];
        const double p = c[0];
        for (ptrdiff_t j = 0; j < n; j++) a[j] += p * row[j];
    }
}

static void ml_spread_2(const float *row, ptrdiff_t n, const double *c, double *const *sums, ptrdiff_t count)
{
    ml_spread_by(row, n, c, sums, count);
}

#if defined(__x86_64__) && defined(__GNUC__)

__attribute__((target("avx2"))) static void ml_spread_4(const float *row, ptrdiff_t n, const double *c,
                                                        double *const *sums, ptrdiff_t count)
{
    ml_spread_by(row, n, c, sums, count);
}

__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) static void ml_spread_8(
    const float *row, ptrdiff_t n, const double *c, double *const *sums, ptrdiff_t count)
{
    ml_spread_by(row, n, c, sums, count);
}

static ml_spread_f ml_spread_of(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return ml_spread_8;
    return __builtin_cpu_supports("avx2") ? ml_spread_4 : ml_spread_2;
}

#else

static ml_spread_f ml_spread_of(void) { return ml_spread_2; }

#endif
#endif
