/* Scores of a row for all classes, and its rank-one update, in vectors as wide as the processor has them.

   The sum of a class goes by the order of the features at any width, and no product is fused with a sum (setup.py):
   the same bits on every machine. All classes of a pass, MOST vectors of them, stay in registers while the row's
   features go by. A call is a row: what it costs to look the kernel up is lost in that. */

#include <string.h>

#include "simd_table.h"

#define GLUE_(name, width) name##_##width
#define GLUE(name, width) GLUE_(name, width)
#define AT(name) GLUE(name, WIDTH)
#define MOST 8
#define FEATURE_AT(index, bytes, p) \
    ((bytes) == 4 ? ((const int32_t *)(index))[p] : (bytes) == 2 ? ((const uint16_t *)(index))[p] : (p))

#define VALUE_AT(data, kind, p, n) \
    ((kind) == FLOATS ? ((const float *)(data))[p] : ((const double *)(data))[(kind) == EQUALS ? (p) + 1 == (n) : (p)])

/* Values of a row: float64, float32, or one float64 for all but the last, which is the next. */
enum { DOUBLES, FLOATS, EQUALS };

/* `call` with the number of vectors, a constant in each branch, for all k classes from l on. */
#define BY_VECTORS(call) \
    for (ptrdiff_t l = 0; l < k; l += MOST * WIDTH) { \
        const ptrdiff_t count = k - l < MOST * WIDTH ? k - l : MOST * WIDTH; \
        switch ((count + WIDTH - 1) / WIDTH) { \
        case 1: call(1); break; \
        case 2: call(2); break; \
        case 3: call(3); break; \
        case 4: call(4); break; \
        case 5: call(5); break; \
        case 6: call(6); break; \
        case 7: call(7); break; \
        default: call(8); \
        } \
    }

#if defined(__GNUC__) || defined(__clang__)

#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define ML_RESTRICT __restrict__

typedef double vec_2 __attribute__((vector_size(16)));

static INLINE vec_2 part_2(const double *p, ptrdiff_t n)
{
    vec_2 v = {p[0], 0};
    if (n == 2) v[1] = p[1];
    return v;
}

static INLINE void put_part_2(double *p, ptrdiff_t n, vec_2 v)
{
    p[0] = v[0];
    if (n == 2) p[1] = v[1];
}

#define WIDTH 2
#define VEC vec_2
#define TARGET
#define PART part_2
#define PUT_PART put_part_2
#include "simd_body.h"
#define PLAIN &kernels_2

#else

#define INLINE inline
#define UNROLL
#define ML_RESTRICT

static INLINE double part_1(const double *p, ptrdiff_t n) { (void)n; return p[0]; }
static INLINE void put_part_1(double *p, ptrdiff_t n, double v) { (void)n; p[0] = v; }

#define WIDTH 1
#define VEC double
#define TARGET
#define PART part_1
#define PUT_PART put_part_1
#include "simd_body.h"
#define PLAIN &kernels_1

#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

static INLINE AVX2 __m256i first_4(ptrdiff_t n)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}

static INLINE AVX2 __m256d part_4(const double *p, ptrdiff_t n) { return _mm256_maskload_pd(p, first_4(n)); }

/* Masked stores of this width are slow on many a processor. */
static INLINE AVX2 void put_part_4(double *p, ptrdiff_t n, __m256d v)
{
    const __m128d low = _mm256_castpd256_pd128(v), high = _mm256_extractf128_pd(v, 1);
    if (n == 1) {
        _mm_store_sd(p, low);
        return;
    }
    _mm_storeu_pd(p, low);
    if (n == 3) _mm_store_sd(p + 2, high);
    if (n == 4) _mm_storeu_pd(p + 2, high);
}

#define WIDTH 4
#define VEC __m256d
#define TARGET AVX2
#define PART part_4
#define PUT_PART put_part_4
#include "simd_body.h"

#define AVX512 __attribute__((target("avx512f")))

static INLINE AVX512 __mmask8 first_8(ptrdiff_t n) { return (__mmask8)((1u << n) - 1); }

static INLINE AVX512 __m512d part_8(const double *p, ptrdiff_t n) { return _mm512_maskz_loadu_pd(first_8(n), p); }

static INLINE AVX512 void put_part_8(double *p, ptrdiff_t n, __m512d v) { _mm512_mask_storeu_pd(p, first_8(n), v); }

#define WIDTH 8
#define VEC __m512d
#define TARGET AVX512
#define PART part_8
#define PUT_PART put_part_8
#include "simd_body.h"

/* The widest of no more than `width`. */
static const kernels_t *kernels_of(int width)
{
    __builtin_cpu_init();
    if (width >= 8 && __builtin_cpu_supports("avx512f")) return &kernels_8;
    if (width >= 4 && __builtin_cpu_supports("avx2")) return &kernels_4;
    return PLAIN;
}

#else

static const kernels_t *kernels_of(int width) { (void)width; return PLAIN; }

#endif
