"""Why a fit stopped: what each status means, when `converged` and `failed` are said, and what to do about the others.

The advice is the same on the command line and in Python, but for what parameters are called there: `called` gives a
Param's name to the reader, its keyword or its option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from marginlinear import params as P

CONVERGED = "converged"  # certificate <= tol * max(1, |objective|)
FINISHED = "finished"  # a method of so many epochs or rounds has made them and promises no more
STALLED = "stalled"  # what is left is rounding, and the certificate is still above the tolerance
CYCLE = "cycle"  # an alternation has come back to where it was, and will not settle
MAX_ITER = "max_iter"  # a cap came first: the reason says which
TIME_LIMIT = "time_limit"  # the time limit came first
STOPPED = "stopped"  # the callback has asked for it
INTERRUPTED = "interrupted"  # Ctrl-C: the best so far was kept
FAILED = "failed"  # a bound was contradicted beyond rounding: a defect, please report it
# From the best to the worst.
STATUSES = (CONVERGED, FINISHED, STALLED, CYCLE, MAX_ITER, TIME_LIMIT, STOPPED, INTERRUPTED, FAILED)

# Reasons of max_iter, and the parameters that cap them.
SWEEPS = "sweeps"  # whatever n_iter counts: Newton steps, epochs and rounds, too
OUTER_ITERATIONS = "outer iterations"
CAPS: dict[str | None, P.Param] = {SWEEPS: P.MAX_ITER, OUTER_ITERATIONS: P.MAX_OUTER}
LIMITS = (P.TIME_LIMIT, *CAPS.values())

# A certificate is a difference of sums over all rows: this much of their size may be rounding.
ROUNDING = 1e-9
SCALE = "scale the features to a common range such as [0, 1]"


class Ended(Protocol):
    """What is read of an Info."""

    @property
    def status(self) -> str: ...

    @property
    def reason(self) -> str | None: ...

    @property
    def objective(self) -> float: ...

    @property
    def bound(self) -> float | None: ...

    @property
    def certificate(self) -> float | None: ...

    @property
    def criterion(self) -> tuple[str, float, float]: ...

    @property
    def tol(self) -> float: ...

    @property
    def n_iter(self) -> int: ...


class Tuned(Protocol):
    """What is read of a Method."""

    @property
    def params(self) -> Sequence[P.Param]: ...

    @property
    def takes(self) -> Sequence[P.Param]: ...


def allowance(tol: float, objective: float) -> float:
    """certificate <= tol max(1, |objective|) is `converged`."""
    return tol * max(1.0, abs(objective))


def status_of(certificate: float, objective: float, tol: float,
              stopped: Any = None) -> tuple[str, str | None]:
    """(status, reason) of a run, from the certificate recomputed at its end. `stopped` is what ended it otherwise: a
    status, or a reason of max_iter."""
    if not math.isfinite(objective) or not certificate >= -allowance(ROUNDING, objective):
        return FAILED, None
    if certificate <= allowance(tol, objective):
        return CONVERGED, None
    return ended_by(stopped)


def ended_by(stopped: Any) -> tuple[str, str | None]:
    """(status, reason) of a run that this has ended."""
    return (MAX_ITER, stopped) if stopped in CAPS else (stopped, None)


def fell_short(status: str) -> bool:
    """Whether it is the end of a fit that its caller should hear of."""
    return status not in (CONVERGED, FINISHED, STOPPED)


def shortfall(info: Ended, method: Tuned, called: Callable[[P.Param], str],
              kernel: str | Callable[..., object] | None = None) -> str:
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
    elif info.status == INTERRUPTED:
        advice = "this is the best so far"
    elif info.status == STALLED:
        advice = (f"no step lowers the objective beyond rounding, and more of them would not: {SCALE}, or take a "
                  f"larger {called(P.TOL)}")
    else:
        met = P.TIME_LIMIT if info.status == TIME_LIMIT else CAPS.get(info.reason)
        first = "" if info.reason is None else f"the cap on {info.reason} came first: "
        advice = first + remedies(method, called, met, info.certificate is not None)
    criterion, value, _ = info.criterion
    return (f"({info.status}): {criterion} {value:.3g} of objective {info.objective:.6g}, tolerance {info.tol:g}, "
            f"after {info.n_iter} sweeps; {advice}")


def remedies(method: Tuned, called: Callable[[P.Param], str], met: P.Param | None = None,
             certified: bool = True) -> str:
    """What makes fits converge that were cut off by the limit `met`, or by any; `certified`: they have a certificate,
    which scales and costs make hard to reach."""
    limits = (P.TIME_LIMIT, P.MAX_ITER, *method.takes) if met is None else (met,)
    more = " or ".join(called(p) for p in limits if p in LIMITS)
    smaller = "a smaller C, " if P.C in method.params else ""
    return (f"{SCALE}, or take {smaller}" if certified else "take ") + f"a larger {called(P.TOL)}, or more {more}"


def keyword(param: P.Param) -> str:
    """A Param as Python calls it."""
    return param.name


def option(param: P.Param) -> str:
    """A Param as the command line calls it."""
    return f"-{param.letter}" if param.letter else param.flag
