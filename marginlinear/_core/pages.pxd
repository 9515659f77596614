"""Large pages for large arrays: fewer misses of the cache of translations."""

cdef extern from *:
    """
    #ifndef ML_PAGES
    #define ML_PAGES
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    /* Fewer, larger pages where the system has them: no harm where it does not. */
    static inline void ml_advise_huge(void *start, size_t size) {
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        uintptr_t low = ((uintptr_t)start + 4095) & ~(uintptr_t)4095;
        uintptr_t high = ((uintptr_t)start + size) & ~(uintptr_t)4095;
        if (low < high) madvise((void *)low, high - low, MADV_HUGEPAGE);
    #else
        (void)start; (void)size;
    #endif
    }
    #endif
    """
    void advise_huge "ml_advise_huge"(void* start, size_t size) noexcept nogil

cdef enum:
    LARGE = 1 << 22  # bytes from which an array asks for them; NumPy's do so from the same size on
