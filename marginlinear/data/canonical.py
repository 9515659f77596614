"""Small problems in an order of their own: equal data, equal models.

A fit that stops at a tolerance depends on the order in which rows stand, and on whether a row is repeated or has a
weight: by no more than the certificate allows, but not in the same bits. Where rows are few, equal rows of one class
become one row of their summed weight, and rows stand in an order that only their content gives. The model is then a
function of the set of rows, whoever trains it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from marginlinear._core.rows import Rows
from marginlinear._typing import AnyArray, FloatArray, IntpArray
from marginlinear.problem import Problem

# Rows times (features + 2) up to which it is done, on a copy: some milliseconds.
SMALL = 2**17


def canonical(problem: Problem) -> Problem:
    """The same problem in canonical form where it is small and its rows have features; else as it is."""
    targets = problem.targets
    found = None if problem.rows.is_gram else merged(problem.rows, problem.y if targets is None else targets,
                                                     problem.instance)
    if found is None:
        return problem
    which, instance = found
    return Problem(problem.rows.select(which), problem.y[which], problem.n_classes, instance, problem.factor[which],
                   targets=None if targets is None else targets[which])


def merged(rows: Rows, y: AnyArray, instance: FloatArray) -> tuple[IntpArray, FloatArray] | None:
    """(numbers of the different rows in canonical order, their summed weights); None where they are many.

    Rows of other storage and precision, but of the same values, come to stand in the same order.
    """
    if rows.m * (rows.n + 2) > SMALL or rows.m == 0:
        return None
    # A row a row: features, class or target, and weight; -0 is 0.
    table = np.zeros((rows.m, rows.n + 2))
    if isinstance(rows.arrays, tuple):
        rows.require()
        _, indices, indptr = rows.arrays
        table[np.repeat(np.arange(rows.m), np.diff(indptr)), indices[:rows.nnz]] = rows.stored()
    else:
        table[:, :-2] = rows.arrays
    table[:, -2], table[:, -1] = y, instance
    table += 0.0
    # By their bytes; of equal rows the first stays first.
    order = np.argsort(table.view(f"V{table.strides[0]}")[:, 0], kind="stable")
    same = (table[order[1:], :-1] == table[order[:-1], :-1]).all(axis=1)
    # One after the other, as sums in another order would have other bits.
    place = np.append(0, np.cumsum(~same))
    weights: Any = np.bincount(place, instance[order])
    return order[np.append(True, ~same)], weights
