/* What code an input reaches: edges between the blocks that gcc's -fsanitize-coverage=trace-pc reports, counted as in
   AFL. Only the thread between watch_begin() and watch_novel() is looked at: what others do depends on their turns. */

#include <stdint.h>

enum { SIZE = 1 << 16 };

static uint8_t counts[SIZE], seen[SIZE];
static uint32_t touched[SIZE];
static uint32_t n_touched;
/* The library is preloaded, so that its variables of a thread need no look-up, which ASan would watch. */
#define OF_THREAD static __thread __attribute__((tls_model("initial-exec")))
OF_THREAD int watching;
OF_THREAD uint32_t previous;

void __sanitizer_cov_trace_pc(void)
{
    if (!watching)
        return;
    uint64_t place = (uint64_t)__builtin_return_address(0) * 0x9E3779B97F4A7C15u;
    uint32_t block = (uint32_t)(place >> 48), edge = block ^ previous;
    previous = block >> 1;
    if (counts[edge] == 0)
        touched[n_touched++] = edge;
    if (counts[edge] < 255)
        counts[edge]++;
}

void watch_begin(void)
{
    watching = 1;
    previous = 0;
}

/* How many edges were taken for the first time, or for the first time so often: 1, 2-3, 4-7, 8-15, ... */
int watch_novel(void)
{
    int found = 0;
    watching = 0;
    while (n_touched > 0) {
        uint32_t edge = touched[--n_touched];
        uint8_t often = 1 << (31 - __builtin_clz(counts[edge]));
        counts[edge] = 0;
        found += !(seen[edge] & often);
        seen[edge] |= often;
    }
    return found;
}
