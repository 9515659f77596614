"""Why a fit stopped: what each status means, when `converged` and `failed` are said, and what to do about the others.

The advice is the same on the command line and in Python, but for what parameters are called there: `called` gives a
Param's name to the reader, its keyword or its option.
"""

import math

from marginlinear import params as P

CONVERGED = "converged"  # certificate <= tol * max(1, |objective|)
MAX_ITER = "max_iter"  # the cap on sweeps (or on outer iterations) came first, or more would be rounding alone
TIME_LIMIT = "time_limit"  # the time limit came first
STALLED = "stalled"  # no step lowers the objective beyond rounding, and the certificate is still above the tolerance
CYCLE = "cycle"  # an alternation has come back to where it was, and will not settle
FINISHED = "finished"  # a stochastic method has made its epochs and promises no more: see its certificate
FAILED = "failed"  # a bound was contradicted beyond rounding: a defect, please report it
STATUSES = (CONVERGED, MAX_ITER, TIME_LIMIT, STALLED, CYCLE, FINISHED, FAILED)

# A certificate is a difference of sums over all rows: this much of their size may be rounding.
ROUNDING = 1e-9
SCALE = "scale the features to a common range such as [0, 1]"


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



def fell_short(status):
    """Whether it is the end of a fit that its caller should hear of."""
    return status not in (CONVERGED, FINISHED)


def shortfall(info, method, called, kernel=None):
    """How the fit of `info` ended, and what to do about it.

    Parameters
    ----------
    info : Info
    method : Method
    called : callable
    kernel : str, callable or None
        The kernel's kind; one that need not be positive semidefinite is what a wrong bound is put down to.
    """
    if info.status == FAILED and kernel not in (None, *P.DEFINITE):
        return f"({FAILED}): its bound is above the objective: {P.INDEFINITE}"
    if info.status == FAILED:
        return (f"({FAILED}): a bound of {info.bound:.6g} above the objective of {info.objective:.6g} is a defect of "
                "marginlinear: please report it with the data")
    if info.status == CYCLE:
        advice = ("the iterations come back to where they were and will not settle: take another "
                  f"{' or '.join(called(p) for p in method.params)}")
    elif info.status == STALLED:
        advice = (f"no step lowers the objective beyond rounding, and more of them would not: {SCALE}, or take a "
                  f"larger {called(P.TOL)}")
    elif info.certificate is None:
        advice = f"take a larger {called(P.TOL)}, or more {_caps(method, called)}"
    else:
        advice = remedies(method, called)
    criterion, value, _ = info.criterion
    return (f"({info.status}): {criterion} {value:.3g} of objective {info.objective:.6g}, tolerance {info.tol:g}, "
            f"after {info.n_iter} sweeps; {advice}")


def remedies(method, called):
    """What makes fits converge that were cut off."""
    smaller = "a smaller C, " if P.C in method.params else ""
    return f"{SCALE}, or take {smaller}a larger {called(P.TOL)}, or more {_caps(method, called)}"


def _caps(method, called):
    return " or ".join(called(p) for p in (P.TIME_LIMIT, P.MAX_ITER, *method.takes)
                       if p.name.startswith(("time_", "max_")))


def keyword(param):
    """A Param as Python calls it."""
    return param.name


def option(param):
    """A Param as the command line calls it."""
    return f"-{param.letter}" if param.letter else param.flag
