"""Bounds checks for raw pointers: live in a build with MARGINLINEAR_BOUNDS=1, free otherwise."""

cdef extern from *:
    """
    #ifndef ML_CHECK
    #ifdef ML_BOUNDS
    #include <stdio.h>
    #include <stdlib.h>
    #define ML_CHECK(i, n) do { if ((unsigned long long)(i) >= (unsigned long long)(n)) { \\
        fprintf(stderr, "%s:%d: index %lld outside [0, %lld)\\n", __FILE__, __LINE__, \\
                (long long)(i), (long long)(n)); abort(); } } while (0)
    #else
    #define ML_CHECK(i, n) do { } while (0)
    #endif
    #endif
    """
    void check "ML_CHECK"(Py_ssize_t i, Py_ssize_t n) noexcept nogil
