/* Passes over the variables of an active set, in vectors as wide as the processor has them: which two to move next.

   No product is fused with a sum (setup.py), and of equal values the first one is taken: the same choice on every
   machine. Arrays are as long as the next multiple of ML_LANES, where what is beyond n cannot move. */

#ifndef ML_PAIR_H
#define ML_PAIR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define ML_LANES 8
/* Two rows, of which the curvature along no step is below this part of the sum, or product, of their own. */
#define ML_SINGULAR 1e-6

typedef struct {
    ptrdiff_t n;
    double *slope;           /* of the dual along each variable */
    const double *curvature; /* > 0 */
    const double *inverse;   /* 1/curvature */
    const double *down;      /* how far it may move, <= 0 */
    const double *up;        /* >= 0 */
} ml_pair_t;

/* slope -= step[0] row[0] + step[1] row[1] before the choice. */
typedef struct {
    const float *row[2];
    double step[2];
} ml_move_t;

/* All return a variable, or -1, and what decided in *best.
   first: of the largest gain by a step of its own. second: of the largest gain after a `step` of another variable, with
   this curvature and row, and as if both were free to move together from there.
   rising: of the largest slope among those that may rise. falling: of those that may fall, the one with the largest gain
   when another, of this slope, rises by as much; *best is how far that slope is above the least of theirs. */
typedef ptrdiff_t (*ml_first_f)(const ml_pair_t *x, const ml_move_t *move, double *best);
typedef ptrdiff_t (*ml_second_f)(const ml_pair_t *x, const float *row, double step, double curvature, double *best);

typedef struct {
    int width;
    ml_first_f first;
    ml_second_f second;
    ml_first_f rising;
    ml_second_f falling;
} ml_passes_t;

#define GLUE_(name, width) name##_##width
#define GLUE(name, width) GLUE_(name, width)
#define AT(name) GLUE(name, WIDTH)
#define INLINE inline __attribute__((always_inline))

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define WIDTH 2
#define TARGET
#define LESSER _mm_min_pd
#define LARGER _mm_max_pd
#include "pair_body.h"

#define WIDTH 4
#define TARGET __attribute__((target("avx2")))
#define LESSER _mm256_min_pd
#define LARGER _mm256_max_pd
#include "pair_body.h"

#define WIDTH 8
#define TARGET __attribute__((target("avx512f,avx512dq")))
#define LESSER _mm512_min_pd
#define LARGER _mm512_max_pd
#include "pair_body.h"

/* The widest of no more than `width`. */
static const ml_passes_t *ml_passes_of(int width)
{
    __builtin_cpu_init();
    if (width >= 8 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return &passes_8;
    if (width >= 4 && __builtin_cpu_supports("avx2")) return &passes_4;
    return &passes_2;
}

#elif defined(__GNUC__)

#define WIDTH 2
#define TARGET
#define LESSER(a, b) (NUMBERS)CHOOSE((a) < (b), a, b)
#define LARGER(a, b) (NUMBERS)CHOOSE((a) > (b), a, b)
#include "pair_body.h"

static const ml_passes_t *ml_passes_of(int width) { (void)width; return &passes_2; }

#else

static double moved_1(const ml_pair_t *x, ptrdiff_t v, const ml_move_t *move)
{
    if (move) {
        x->slope[v] -= move->step[0] * move->row[0][v];
        x->slope[v] -= move->step[1] * move->row[1][v];
    }
    return x->slope[v];
}

static double gain_1(const ml_pair_t *x, ptrdiff_t v, double slope)
{
    const double wanted = slope * x->inverse[v], above = wanted > x->down[v] ? wanted : x->down[v];
    const double step = above < x->up[v] ? above : x->up[v];
    return step * (slope - 0.5 * x->curvature[v] * step);
}

static double larger_1(double a, double b) { return a > b ? a : b; }

static ptrdiff_t first_1(const ml_pair_t *x, const ml_move_t *move, double *best)
{
    ptrdiff_t found = -1;
    *best = 0;
    for (ptrdiff_t v = 0; v < x->n; v++) {
        const double gain = gain_1(x, v, moved_1(x, v, move));
        if (gain > *best) *best = gain, found = v;
    }
    return found;
}

static ptrdiff_t second_1(const ml_pair_t *x, const float *row, double step, double curvature, double *best)
{
    ptrdiff_t found = -1;
    *best = 0;
    for (ptrdiff_t v = 0; v < x->n; v++) {
        const double product = row[v], both = curvature * x->curvature[v];
        const double left = larger_1(both - product * product, ML_SINGULAR * both);
        const double gain = both * gain_1(x, v, x->slope[v] - step * product) / left;
        if (gain > *best) *best = gain, found = v;
    }
    return found;
}

static ptrdiff_t rising_1(const ml_pair_t *x, const ml_move_t *move, double *best)
{
    ptrdiff_t found = -1;
    *best = -INFINITY;
    for (ptrdiff_t v = 0; v < x->n; v++) {
        const double slope = moved_1(x, v, move);
        if (slope > *best && x->up[v] > 0) *best = slope, found = v;
    }
    return found;
}

static ptrdiff_t falling_1(const ml_pair_t *x, const float *row, double slope, double curvature, double *best)
{
    ptrdiff_t found = -1;
    double most = 0;
    *best = 0;
    for (ptrdiff_t v = 0; v < x->n; v++) {
        const double both = x->curvature[v] + curvature, fall = slope - x->slope[v];
        const double gain = fall * fall / larger_1(both - 2.0 * row[v], ML_SINGULAR * both);
        if (!(fall > 0) || !(x->down[v] < 0)) continue;
        if (gain > most) most = gain, found = v;
        *best = larger_1(*best, fall);
    }
    return found;
}

static const ml_passes_t passes_1 = {1, first_1, second_1, rising_1, falling_1};

static const ml_passes_t *ml_passes_of(int width) { (void)width; return &passes_1; }

#endif
#endif
