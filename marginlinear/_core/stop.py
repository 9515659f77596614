"""When a run may end: the meaning of `converged` and of `failed`, in one place."""

import math

from marginlinear.problem import CONVERGED, FAILED

# A certificate is a difference of sums over all rows: this much of their size may be rounding.
ROUNDING = 1e-9


def allowance(tol, objective):
    """certificate <= tol max(1, |objective|) is `converged`."""
    return tol * max(1.0, abs(objective))


def status_of(certificate, objective, tol, stopped):
    """How a run ended, from the certificate recomputed at its end; `stopped` says what ran out before that."""
    if not math.isfinite(objective) or not certificate >= -allowance(ROUNDING, objective):
        return FAILED
    if certificate <= allowance(tol, objective):
        return CONVERGED
    return stopped
