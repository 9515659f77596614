/* Kernel values of ML_LANES rows, the left ones, with ML_BLOCK others at a time, in vectors as wide as the processor
   has them.

   The left rows stand side by side, the lanes: number p * ML_LANES + l is feature p of row l. An inner product is
   summed in the order of the features at any width, and no product is fused with a sum (setup.py): the same bits on
   every machine, in any company, and whichever of two rows is the left one. */

#ifndef ML_GRAM_H
#define ML_GRAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ML_LANES 8
#define ML_BLOCK 64

enum { ML_LINEAR, ML_POLY, ML_RBF, ML_SIGMOID };

typedef struct {
    int kind;
    int degree;
    double gamma;
    double coef0;
    double offset; /* added to every value */
} ml_kernel_t;

/* products[l * ML_BLOCK + j]: of left row l and right row j < count <= ML_BLOCK, which has the values begin[j] to
   begin[j + 1] of data. */
typedef void (*ml_sparse_f)(const void *data, const void *index, const int64_t *begin, ptrdiff_t count,
                            const double *lanes, double *products);
/* The same of right rows of n values in panels of ML_LANES, each laid out as the lanes, the last one filled up. */
typedef void (*ml_dense_f)(const double *panels, ptrdiff_t n, ptrdiff_t count, const double *lanes, double *products);
/* Kernel values from the products of one left row and the squared norms; arrays are read and written to the next
   multiple of ML_LANES. */
typedef void (*ml_values_f)(const ml_kernel_t *kernel, const double *products, double left, const double *right,
                            ptrdiff_t count, void *out);

typedef struct {
    int width;
    ml_sparse_f sparse[4]; /* csr64, csr32, narrow64, narrow32 */
    ml_dense_f dense;
    ml_values_f values[2]; /* double, float */
} ml_gram_t;

#define GLUE_(name, width) name##_##width
#define GLUE(name, width) GLUE_(name, width)
#define AT(name) GLUE(name, WIDTH)
#define FEATURE_AT(index, bytes, p) ((bytes) == 4 ? ((const int32_t *)(index))[p] : ((const uint16_t *)(index))[p])
#define INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

#if defined(__GNUC__)

#define WIDTH 2
#define TARGET
#include "gram_body.h"

#if defined(__x86_64__)

#define WIDTH 4
#define TARGET __attribute__((target("avx2")))
#include "gram_body.h"

#define WIDTH 8
#define TARGET __attribute__((target("avx512f")))
#include "gram_body.h"

/* The widest of no more than `width`. */
static const ml_gram_t *ml_gram_of(int width)
{
    __builtin_cpu_init();
    if (width >= 8 && __builtin_cpu_supports("avx512f")) return &gram_8;
    if (width >= 4 && __builtin_cpu_supports("avx2")) return &gram_4;
    return &gram_2;
}

#else

static const ml_gram_t *ml_gram_of(int width) { (void)width; return &gram_2; }

#endif

#else

#include <math.h>

#define VALUES(name, number) \
    static void name##_1(const ml_kernel_t *kernel, const double *products, double left, const double *right, \
                         ptrdiff_t count, void *out) \
    { \
        for (ptrdiff_t j = 0; j < count; j++) { \
            const double distance = left + right[j] - 2.0 * products[j]; \
            const double z = products[j] * kernel->gamma + kernel->coef0; \
            ((number *)out)[j] = (number)( \
                kernel->offset + (kernel->kind == ML_LINEAR ? products[j] \
                                  : kernel->kind == ML_RBF ? exp(-kernel->gamma * (distance > 0 ? distance : 0.0)) \
                                  : kernel->kind == ML_SIGMOID ? tanh(z) : pow(z, kernel->degree))); \
        } \
    }

VALUES(values64, double)
VALUES(values32, float)

#define SPARSE(name, number, feature) \
    static void name##_1(const void *data, const void *index, const int64_t *begin, ptrdiff_t count, \
                         const double *lanes, double *products) \
    { \
        for (ptrdiff_t j = 0; j < count; j++) \
            for (int lane = 0; lane < ML_LANES; lane++) { \
                double sum = 0; \
                for (int64_t p = begin[j]; p < begin[j + 1]; p++) \
                    sum += ((const number *)data)[p] * lanes[ML_LANES * ((const feature *)index)[p] + lane]; \
                products[lane * ML_BLOCK + j] = sum; \
            } \
    }

SPARSE(csr64, double, int32_t)
SPARSE(csr32, float, int32_t)
SPARSE(narrow64, double, uint16_t)
SPARSE(narrow32, float, uint16_t)

static void dense_1(const double *panels, ptrdiff_t n, ptrdiff_t count, const double *lanes, double *products)
{
    for (ptrdiff_t j = 0; j < count; j++)
        for (int lane = 0; lane < ML_LANES; lane++) {
            const double *right = panels + j / ML_LANES * ML_LANES * n + j % ML_LANES;
            double sum = 0;
            for (ptrdiff_t p = 0; p < n; p++) sum += lanes[ML_LANES * p + lane] * right[ML_LANES * p];
            products[lane * ML_BLOCK + j] = sum;
        }
}

static const ml_gram_t gram_1 = {1, {csr64_1, csr32_1, narrow64_1, narrow32_1}, dense_1, {values64_1, values32_1}};

static const ml_gram_t *ml_gram_of(int width) { (void)width; return &gram_1; }

#endif
#endif
