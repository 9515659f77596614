/* The parts of pair.h at one width. Defined by who includes this: WIDTH of a vector, in doubles, TARGET, the attribute
   of functions that use it, LESSER and LARGER of two vectors. */

typedef double AT(numbers) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
typedef float AT(singles) __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int64_t AT(bits) __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));
#define NUMBERS AT(numbers)
#define BITS AT(bits)
#define SPLAT(value) ((NUMBERS){0} + (value))
#define CHOOSE(mask, yes, no) ((((BITS)(yes)) & (mask)) | (((BITS)(no)) & ~(mask)))
#define NUMBERS_AT(array) (*(const NUMBERS *)((array) + v))
#define ROW_AT(row) __builtin_convertvector(*(const AT(singles) *)((row) + v), NUMBERS)

/* The place of the largest ratio, the first one of equals, and the ratio; -1 where none was found. */
static INLINE TARGET ptrdiff_t AT(place)(NUMBERS over, NUMBERS under, BITS where, double *best)
{
    ptrdiff_t at = -1;
    for (int lane = 0; lane < WIDTH; lane++) {
        const double value = over[lane] / under[lane];
        if (where[lane] >= 0 && (at < 0 || value > *best || (value == *best && where[lane] < at))) {
            *best = value;
            at = where[lane];
        }
    }
    return at;
}

static INLINE TARGET BITS AT(lanes)(void)
{
    BITS at = {0};
    for (int lane = 0; lane < WIDTH; lane++) at[lane] = lane;
    return at;
}

/* What a variable's own step raises the dual by. */
static INLINE TARGET NUMBERS AT(gain)(const ml_pair_t *x, ptrdiff_t v, NUMBERS slope)
{
    const NUMBERS step = LESSER(LARGER(slope * NUMBERS_AT(x->inverse), NUMBERS_AT(x->down)), NUMBERS_AT(x->up));
    return step * (slope - 0.5 * NUMBERS_AT(x->curvature) * step);
}

static INLINE TARGET NUMBERS AT(moved)(const ml_pair_t *x, ptrdiff_t v, const ml_move_t *move)
{
    NUMBERS slope = NUMBERS_AT(x->slope);
    if (move) {
        slope = (slope - move->step[0] * ROW_AT(move->row[0])) - move->step[1] * ROW_AT(move->row[1]);
        *(NUMBERS *)(x->slope + v) = slope;
    }
    return slope;
}

static TARGET ptrdiff_t AT(first)(const ml_pair_t *x, const ml_move_t *move, double *best)
{
    NUMBERS most = SPLAT(0.0);
    BITS where = {0}, at = AT(lanes)();
    where -= 1;
    for (ptrdiff_t v = 0; v < x->n; v += WIDTH, at += WIDTH) {
        const NUMBERS gain = AT(gain)(x, v, AT(moved)(x, v, move));
        const BITS better = gain > most;
        most = (NUMBERS)CHOOSE(better, gain, most);
        where = CHOOSE(better, at, where);
    }
    *best = 0;
    return AT(place)(most, SPLAT(1.0), where, best);
}

static TARGET ptrdiff_t AT(second)(const ml_pair_t *x, const float *row, double step, double curvature, double *best)
{
    NUMBERS over = SPLAT(0.0), under = SPLAT(1.0);
    BITS where = {0}, at = AT(lanes)();
    where -= 1;
    for (ptrdiff_t v = 0; v < x->n; v += WIDTH, at += WIDTH) {
        const NUMBERS product = ROW_AT(row), both = curvature * NUMBERS_AT(x->curvature);
        const NUMBERS gain = both * AT(gain)(x, v, NUMBERS_AT(x->slope) - step * product);
        const NUMBERS left = LARGER(both - product * product, ML_SINGULAR * both);
        const BITS better = gain * under > over * left;
        over = (NUMBERS)CHOOSE(better, gain, over);
        under = (NUMBERS)CHOOSE(better, left, under);
        where = CHOOSE(better, at, where);
    }
    *best = 0;
    return AT(place)(over, under, where, best);
}

static TARGET ptrdiff_t AT(rising)(const ml_pair_t *x, const ml_move_t *move, double *best)
{
    NUMBERS most = SPLAT(-INFINITY);
    BITS where = {0}, at = AT(lanes)();
    where -= 1;
    for (ptrdiff_t v = 0; v < x->n; v += WIDTH, at += WIDTH) {
        const NUMBERS slope = AT(moved)(x, v, move);
        const BITS better = (slope > most) & (NUMBERS_AT(x->up) > 0.0);
        most = (NUMBERS)CHOOSE(better, slope, most);
        where = CHOOSE(better, at, where);
    }
    *best = -INFINITY;
    return AT(place)(most, SPLAT(1.0), where, best);
}

static TARGET ptrdiff_t AT(falling)(const ml_pair_t *x, const float *row, double slope, double curvature, double *best)
{
    NUMBERS over = SPLAT(0.0), under = SPLAT(1.0), most = SPLAT(0.0);
    BITS where = {0}, at = AT(lanes)();
    ptrdiff_t found;
    where -= 1;
    for (ptrdiff_t v = 0; v < x->n; v += WIDTH, at += WIDTH) {
        const NUMBERS both = NUMBERS_AT(x->curvature) + curvature, fall = slope - NUMBERS_AT(x->slope);
        const NUMBERS left = LARGER(both - 2.0 * ROW_AT(row), ML_SINGULAR * both), gain = fall * fall;
        const BITS may = (fall > 0.0) & (NUMBERS_AT(x->down) < 0.0), better = (gain * under > over * left) & may;
        most = LARGER(most, (NUMBERS)((BITS)fall & may));
        over = (NUMBERS)CHOOSE(better, gain, over);
        under = (NUMBERS)CHOOSE(better, left, under);
        where = CHOOSE(better, at, where);
    }
    found = AT(place)(over, under, where, best);
    *best = 0;
    for (int lane = 0; lane < WIDTH; lane++) *best = most[lane] > *best ? most[lane] : *best;
    return found;
}

static const ml_passes_t AT(passes) = {WIDTH, AT(first), AT(second), AT(rising), AT(falling)};

#undef NUMBERS
#undef BITS
#undef SPLAT
#undef CHOOSE
#undef NUMBERS_AT
#undef ROW_AT
#undef WIDTH
#undef TARGET
#undef LESSER
#undef LARGER
