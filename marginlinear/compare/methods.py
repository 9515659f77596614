"""The methods of a comparison, of what names them: texts (`specs`), estimators, or contestants that are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marginlinear.compare.external import estimator_of, liblinear_of, sklearn_of
from marginlinear.compare.registered import registered_of
from marginlinear.compare.specs import SKLEARN, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from marginlinear.compare.contestants import Contestant


def contestant_of(text: str, common: Mapping[str, Any] | None = None, overrides: Mapping[str, str] | None = None,
                  ) -> Contestant:
    """The Contestant of a text.

    Parameters
    ----------
    text : str
    common : dict
        Values for all methods of marginlinear that have these parameters, where their texts do not name them.
    overrides : dict
        Label -> a grid as text, as of margin-compare --grid: it adds to, and takes the place of, what the text names.

    Raises
    ------
    ValueError
        Names the text, and what is wrong with it.
    """
    spec = parse_spec(text)
    try:
        if spec.external:
            made: Contestant = (sklearn_of if spec.name.startswith(SKLEARN) else liblinear_of)(spec)
            if made.label in (overrides or {}):
                raise ValueError("a grid beside it is for methods of marginlinear: give the values in its text")
            return made
        return registered_of(spec, common or {}, (overrides or {}).get(spec.label or spec.name))
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def contestants_of(methods: Iterable[Any], common: Mapping[str, Any], grids: Mapping[str, str] | None = None,
                   ) -> list[Contestant]:
    """The Contestants, with labels of their own; ValueError where two have one."""
    found: list[Contestant] = []
    for method in [methods] if isinstance(methods, str) else methods:
        if isinstance(method, str):
            found.append(contestant_of(method, common, grids))
        elif hasattr(method, "points") and hasattr(method, "search"):
            found.append(method)
        else:
            parts = list(method) if isinstance(method, tuple) else [method]
            label = parts.pop(0) if parts and isinstance(parts[0], str) else None
            if len(parts) not in (1, 2):
                raise ValueError(f"{method}: give an estimator, (estimator, grid), (label, estimator) or (label, "
                                 "estimator, grid)")
            estimator, grid = [*parts, None][:2]
            found.append(estimator_of(estimator, grid, label))
    if not found:
        raise ValueError("methods: there is none: give one such as 'l2svc'")
    labels = [one.label for one in found]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"two methods are called {label}: give one a label of its own, as in 'other=l2svc;C=1', "
                             "or in Python (label, estimator)")
    unknown = next((label for label in grids or () if label not in labels), None)
    if unknown is not None:
        raise ValueError(f"grids: there is no method {unknown}: give one of {', '.join(labels)}")
    return found


def regression_of(contestants: Sequence[Contestant]) -> bool:
    """Whether numbers are learned; ValueError where some methods learn these and others classes."""
    kinds = {one.label: one.regression for one in contestants if one.regression is not None}
    if len(set(kinds.values())) > 1:
        numbers = next(label for label, kind in kinds.items() if kind)
        classes = next(label for label, kind in kinds.items() if not kind)
        raise ValueError(f"{numbers} predicts numbers, {classes} classes: compare them in two runs")
    return any(kinds.values())
