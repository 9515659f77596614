/* The kernels of a row over all classes, chosen once for the processor (simd.h). */

#ifndef ML_KERNELS_H
#define ML_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* data and features, of the storage's types, are those of the row's n values; features are not looked at in dense rows,
   whose values are of 0 to n - 1. */
typedef void (*scores_f)(const void *data, const void *features, ptrdiff_t n, const double *W, ptrdiff_t k,
                         double *s);
typedef void (*update_f)(const void *data, const void *features, ptrdiff_t n, const double *delta, double *W,
                         ptrdiff_t k);

/* w += a row, of n values in turn. */
typedef void (*axpy_f)(const void *row, ptrdiff_t n, double a, double *w);

/* By storage: csr64, csr32, narrow64, narrow32, equal64, dense64, dense32; axpy of float64 and float32. */
typedef struct {
    int width;
    scores_f scores[7];
    update_f update[7];
    axpy_f axpy[2];
} kernels_t;

#endif
