"""Models of proximal Newton steps whose curvature is a matrix, and extrapolation of what cycles over one come to.

    slope.v + v'Hv/2 + sum_s kink_s |w_s + v_s|,      residual = slope + H v
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY

from marginlinear._core.penalty cimport best_move, violation_of

from marginlinear._core.proximal import solve

# Cycles that are extrapolated from, and the most over a matrix.
MEMORY, TURNS = 5, 2000
# Weights that may come to 0 where the others keep their signs.
CROSSINGS = 10


def least(H, slope, w, kinks, double enough):
    """The change v where the model is least, up to violations of optimality that add up to `enough`.

    Parameters
    ----------
    H : float64 array of shape (n, n)
        Its diagonal is positive.
    slope, w, kinks : float64 arrays of shape (n,)
    enough : float

    Returns
    -------
    float64 array of shape (n,)
    int
        The cycles over the weights.
    """
    cdef Py_ssize_t turn = 0
    change, residual = np.zeros(len(w)), slope.copy()
    cdef const double[:, ::1] matrix = H
    cdef double[::1] v = change, r = residual
    cdef const double[::1] held = w, l1 = kinks

    def model_at(v, image):
        return 0.5 * (slope + image) @ v + kinks @ np.abs(w + v)

    trail, exact_at = [(change.copy(), residual.copy())], MEMORY
    for turn in range(TURNS):
        with nogil:
            left = cycle(matrix, v, r, held, l1)
        if left <= enough:
            break
        trail.append((change.copy(), residual.copy()))
        if len(trail) > MEMORY:
            best = extrapolated(trail, model_at)
            if turn + 1 >= exact_at:
                best, exact_at = on_signs(H, slope, w, kinks, best[0]), 2 * exact_at
            change[:], residual[:] = best
            trail = [(change.copy(), residual.copy())]
            PyErr_CheckSignals()
    return change, turn + 1


def on_signs(H, slope, w, kinks, change):
    """(change, residual) where the model is least over the weights that are not 0, as long as these keep their signs:
    towards there, those that come to 0 on the way staying at 0, and from there anew."""
    new, signs = w + change, np.sign(w + change)
    residual, step = slope + H @ change, np.zeros(len(w))
    for _ in range(CROSSINGS):
        free = np.flatnonzero(signs)
        if len(free) == 0:
            break
        step[:] = 0
        step[free] = solve(np.ascontiguousarray(H[np.ix_(free, free)]),
                           -(residual[free] + kinks[free] * signs[free]), 1)
        if follow(H, step, H @ step, new, residual, signs, kinks) == 0:
            break
    return new - w, residual


def extrapolated(trail, model_at):
    """The last (change, image) of a trail, or Anderson's extrapolation of it (Bertrand and Massias, AISTATS 2021) where
    the model has a lower value there."""
    last = trail[len(trail) - 1]
    changes, images = np.array([change for change, _ in trail]), np.array([image for _, image in trail])
    moves = np.diff(changes, axis=0)
    gram = moves @ moves.T
    gram[np.diag_indices(len(gram))] += 1e-12 * gram.trace()
    try:
        weights = np.linalg.solve(gram, np.ones(len(gram)))
    except np.linalg.LinAlgError:
        return last
    if not np.isfinite(weights).all() or weights.sum() == 0:
        return last
    weights /= weights.sum()
    further = weights @ changes[1:], weights @ images[1:]
    return further if model_at(*further) < model_at(*last) else last


cdef double cycle(const double[:, ::1] H, double[::1] v, double[::1] r, const double[::1] held,
                  const double[::1] l1) noexcept nogil:
    """Coordinate descent on the model, r being the residual; the sum of the violations that it met."""
    cdef Py_ssize_t s, t, n = v.shape[0]
    cdef double w, d, total = 0
    for s in range(n):
        w = held[s] + v[s]
        d = violation_of(l1[s], w, r[s])
        total += d
        if d == 0:
            continue
        d = best_move(l1[s], w, r[s], H[s, s])
        v[s] = v[s] + d if d != -w else -held[s]
        for t in range(n):
            r[t] += d * H[s, t]
    return total


cdef Py_ssize_t follow(const double[:, ::1] H, double[::1] step, double[::1] image, double[::1] new, double[::1] r,
                       double[::1] signs, const double[::1] l1) noexcept nogil:
    """The weights `new` go along `step`, whose image is H step, and their residual r with them, to where the model no
    longer falls; a weight that comes to 0 stays there, with a sign of 0. Returns how many do."""
    cdef Py_ssize_t s, first, n = new.shape[0], count = 0
    cdef double fall, bend, part, reach
    while True:
        fall = bend = 0
        part, first = INFINITY, -1
        for s in range(n):
            fall -= (r[s] + l1[s] * signs[s]) * step[s]
            bend += step[s] * image[s]
            # The free one has no kink.
            if step[s] * signs[s] < 0 and l1[s] > 0:
                reach = -new[s] / step[s]
                if reach < part:
                    part, first = reach, s
        if not fall > 0:
            return count
        if fall < part * bend:
            part, first = fall / bend, -1
        elif first < 0:
            return count
        for s in range(n):
            new[s] += part * step[s]
            r[s] += part * image[s]
        if first < 0:
            return count
        count += 1
        for s in range(n):
            image[s] -= step[first] * H[s, first]
        new[first] = signs[first] = step[first] = 0
