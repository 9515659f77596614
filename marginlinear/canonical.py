"""Small problems in an order of their own: equal data, equal models.

A fit that stops at a tolerance depends on the order in which rows stand, and on whether a row is repeated or has a
weight: by no more than the certificate allows, but not in the same bits. Where rows are few, equal rows of one class
become one row of their summed weight, and rows stand in an order that only their content gives. The model is then a
function of the set of rows, whoever trains it.
"""

import numpy as np

from marginlinear.problem import Problem

# Rows times features up to which it is done, on a copy: a millisecond or two.
SMALL = 2**17


def canonical(problem):
    """The same problem in canonical form where it is small and its rows have features; else as it is.

    Rows of other storage and precision, but of the same values, come to stand in the same order.
    """
    rows, m = problem.rows, problem.rows.m
    if rows.is_gram or m * max(1, rows.n) > SMALL:
        return problem
    # A row a row: features, class and weight. -0 and explicit zeros are zeros.
    table = np.zeros((m, rows.n + 2))
    if isinstance(rows.arrays, tuple):
        data, indices, indptr = rows.arrays
        table[np.repeat(np.arange(m), np.diff(indptr)), indices] = data
    else:
        table[:, :rows.n] = rows.arrays
    table[:, rows.n], table[:, rows.n + 1] = problem.y, problem.instance
    table += 0.0
    order = np.argsort(table.view(f"V{table.itemsize * table.shape[1]}")[:, 0], kind="stable")
    table = table[order]
    new = np.append(True, (table[1:, :-1] != table[:-1, :-1]).any(axis=1))
    first = np.flatnonzero(new)
    which = order[first]
    return Problem(rows.select(which), problem.y[which], problem.n_classes,
                   np.add.reduceat(problem.instance[order], first), problem.factor[which])
