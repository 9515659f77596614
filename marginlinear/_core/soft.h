/* log(1 + exp(-g)) of many margins g, and c times its first two derivatives, for margin_newton.pyx: own = c s,
   curvature = c s (1 - s), s = 1/(1 + exp(g)), loss = c log(1 + exp(-g)).

   And the relative entropy E(x) = (1 + x) log(1 + x) - x of many x >= -1, in their place; for up to 7 numbers behind
   them, too.

   exp is 2^k times its series at |r| <= log(2)/2; log(1 + e) that of 2 artanh(x/(2 + x)), x = e, or (e - 1)/2 beside
   log(2). Vectors of any width do the same on each number, and no product is fused with a sum (setup.py): the same
   bits. */

#ifndef ML_SOFT_H
#define ML_SOFT_H

#include <math.h>
#include <string.h>

/* Where the series of E is taken. */
#define ML_CLOSE 0.02
/* Beyond, exp(-|g|) is taken for what it is here: nothing, beside 1, and a number. */
#define ML_FAR 700.0
#define ML_HALF 0.41421356237309503

#if defined(__GNUC__)

#define ML_SOFT(NAME, TARGET, LANES)                                                                                  \
    TARGET static void NAME(const double *g, const double *c, Py_ssize_t n, double *own, double *curvature,           \
                            double *loss) {                                                                           \
        typedef double vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                         \
        typedef long long bits __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                        \
        const vector zero = {0}, far = zero - ML_FAR, sign = -zero, ln2 = zero + 0x1.62e42fefa39efp-1;                \
        for (Py_ssize_t i = 0; i < n; i += LANES) {                                                                   \
            double room[5][LANES];                                                                                    \
            const int whole = i + LANES <= n;                                                                         \
            if (!whole) {                                                                                             \
                memset(room, 0, sizeof room);                                                                         \
                memcpy(room[0], g + i, (n - i) * sizeof(double));                                                     \
                memcpy(room[1], c + i, (n - i) * sizeof(double));                                                     \
            }                                                                                                         \
            const vector x = *(const vector *)(whole ? g + i : room[0]);                                              \
            const vector cost = *(const vector *)(whole ? c + i : room[1]);                                           \
            vector t = (vector)((bits)x | (bits)sign);                                                                \
            bits which = t < far;                                                                                     \
            t = (vector)(((bits)far & which) | ((bits)t & ~which));                                                   \
            vector k = t * 0x1.71547652b82fep+0 + 0x1.8p52;                                                           \
            const bits power = (bits)k << 52;                                                                         \
            k -= 0x1.8p52;                                                                                            \
            const vector r = (t - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;                              \
            vector e = r * (1 / 6227020800.) + 1 / 479001600.;                                                        \
            e = e * r + 1 / 39916800.;                                                                                \
            e = e * r + 1 / 3628800.;                                                                                 \
            e = e * r + 1 / 362880.;                                                                                  \
            e = e * r + 1 / 40320.;                                                                                   \
            e = e * r + 1 / 5040.;                                                                                    \
            e = e * r + 1 / 720.;                                                                                     \
            e = e * r + 1 / 120.;                                                                                     \
            e = e * r + 1 / 24.;                                                                                      \
            e = e * r + 1 / 6.;                                                                                       \
            e = e * r + 0.5;                                                                                          \
            e = e * r + 1;                                                                                            \
            e = e * r + 1;                                                                                            \
            e = (vector)((bits)e + power);                                                                            \
            const vector more = 1 / (1 + e), less = e * more;                                                         \
            which = x > zero;                                                                                         \
            const vector share = (vector)(((bits)less & which) | ((bits)more & ~which));                              \
            const vector down = (vector)(~which & (bits)x);                                                           \
            which = e > zero + ML_HALF;                                                                               \
            const vector half = (e - 1) * 0.5, a = (vector)(((bits)half & which) | ((bits)e & ~which));               \
            const vector z = a / (2 + a), w = z * z;                                                                  \
            vector l = w * (1 / 21.) + 1 / 19.;                                                                       \
            l = l * w + 1 / 17.;                                                                                      \
            l = l * w + 1 / 15.;                                                                                      \
            l = l * w + 1 / 13.;                                                                                      \
            l = l * w + 1 / 11.;                                                                                      \
            l = l * w + 1 / 9.;                                                                                       \
            l = l * w + 1 / 7.;                                                                                       \
            l = l * w + 1 / 5.;                                                                                       \
            l = l * w + 1 / 3.;                                                                                       \
            l = (l * w + 1) * (z + z) + (vector)((bits)ln2 & which);                                                  \
            *(vector *)(whole ? own + i : room[2]) = cost * share;                                                    \
            *(vector *)(whole ? curvature + i : room[3]) = cost * less * more;                                        \
            *(vector *)(whole ? loss + i : room[4]) = cost * (l - down);                                              \
            if (!whole) {                                                                                             \
                memcpy(own + i, room[2], (n - i) * sizeof(double));                                                   \
                memcpy(curvature + i, room[3], (n - i) * sizeof(double));                                             \
                memcpy(loss + i, room[4], (n - i) * sizeof(double));                                                  \
            }                                                                                                         \
        }                                                                                                             \
    }

/* E, of which a series is better near 0: 1 + x is 2^k times a number within a factor of 2^(1/2) of 1. */
#define ML_ENTROPY(NAME, TARGET, LANES)                                                                               \
    TARGET static void NAME(double *x, Py_ssize_t n) {                                                                \
        typedef double vector __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                         \
        typedef long long bits __attribute__((vector_size(8 * LANES), aligned(8), may_alias));                        \
        const vector zero = {0}, one = zero + 1, ln2 = zero + 0x1.62e42fefa39efp-1;                                   \
        const bits half = (bits)(zero + 0x1.6a09e667f3bcdp-1), mantissa = (bits)zero + 0xfffffffffffffLL;             \
        for (Py_ssize_t i = 0; i < n; i += LANES) {                                                                   \
            const vector t = *(const vector *)(x + i), y = 1 + t;                                                     \
            const bits power = ((bits)y - half) >> 52;                                                                \
            const vector m = (vector)(((((bits)y - half) & mantissa)) + half);                                        \
            const vector k = (vector)((power + (bits)(zero + 0x1.8p52))) - 0x1.8p52;                                  \
            const vector z = (m - 1) / (m + 1), w = z * z;                                                            \
            vector l = w * (1 / 21.) + 1 / 19.;                                                                       \
            l = l * w + 1 / 17.;                                                                                      \
            l = l * w + 1 / 15.;                                                                                      \
            l = l * w + 1 / 13.;                                                                                      \
            l = l * w + 1 / 11.;                                                                                      \
            l = l * w + 1 / 9.;                                                                                       \
            l = l * w + 1 / 7.;                                                                                       \
            l = l * w + 1 / 5.;                                                                                       \
            l = l * w + 1 / 3.;                                                                                       \
            l = (l * w + 1) * (z + z) + k * ln2;                                                                      \
            const vector far = y * l - t;                                                                             \
            vector near = t * (-1 / 72.) + 1 / 56.;                                                                   \
            near = 1 / 42. - t * near;                                                                                \
            near = 1 / 30. - t * near;                                                                                \
            near = 1 / 20. - t * near;                                                                                \
            near = 1 / 12. - t * near;                                                                                \
            near = 1 / 6. - t * near;                                                                                 \
            near = (1 / 2. - t * near) * (t * t);                                                                     \
            const bits close = (t < zero + ML_CLOSE) & (t > zero - ML_CLOSE), empty = y <= zero;                      \
            const vector found = (vector)(((bits)near & close) | ((bits)far & ~close));                               \
            *(vector *)(x + i) = (vector)(((bits)one & empty) | ((bits)found & ~empty));                              \
        }                                                                                                             \
    }

#if defined(__x86_64__)
ML_SOFT(ml_soft_baseline, , 2)
ML_SOFT(ml_soft_avx2, __attribute__((target("avx2"))), 4)
ML_SOFT(ml_soft_avx512, __attribute__((target("avx512f,avx512dq"))), 8)
ML_ENTROPY(ml_entropy_baseline, , 2)
ML_ENTROPY(ml_entropy_avx2, __attribute__((target("avx2"))), 4)
ML_ENTROPY(ml_entropy_avx512, __attribute__((target("avx512f,avx512dq"))), 8)

static void ml_soft(const double *g, const double *c, Py_ssize_t n, double *own, double *curvature, double *loss) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        ml_soft_avx512(g, c, n, own, curvature, loss);
    else if (__builtin_cpu_supports("avx2"))
        ml_soft_avx2(g, c, n, own, curvature, loss);
    else
        ml_soft_baseline(g, c, n, own, curvature, loss);
}

static inline void ml_entropy(double *x, Py_ssize_t n) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        ml_entropy_avx512(x, n);
    else if (__builtin_cpu_supports("avx2"))
        ml_entropy_avx2(x, n);
    else
        ml_entropy_baseline(x, n);
}
#else
ML_SOFT(ml_soft, , 2)
ML_ENTROPY(ml_entropy, , 2)
#endif

#else

static void ml_soft(const double *g, const double *c, Py_ssize_t n, double *own, double *curvature, double *loss) {
    for (Py_ssize_t i = 0; i < n; ++i) {
        const double e = exp(-fabs(g[i])), more = 1 / (1 + e), less = e * more;
        own[i] = c[i] * (g[i] > 0 ? less : more);
        curvature[i] = c[i] * less * more;
        loss[i] = c[i] * (log1p(e) - (g[i] > 0 ? 0 : g[i]));
    }
}


static inline void ml_entropy(double *x, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; ++i)
        x[i] = x[i] > -1 ? fabs(x[i]) < 1e-5 ? x[i] * x[i] * (1 / 2. - x[i] * (1 / 6. - x[i] / 12.))
                                             : (1 + x[i]) * log1p(x[i]) - x[i] : 1;
}

#endif
#endif
