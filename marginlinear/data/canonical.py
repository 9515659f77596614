"""Small problems in an order of their own: equal data, equal models.

A fit that stops at a tolerance depends on the order in which rows stand, and on whether a row is repeated or has a
weight: by no more than the certificate allows, but not in the same bits. Where rows are few, equal rows of one class
become one row of their summed weight, and rows stand in an order that only their content gives. The model is then a
function of the set of rows, whoever trains it.
"""

from marginlinear._core.vector import taken
from marginlinear.problem import Problem

# Rows times (features + 2) up to which it is done, on a copy: some milliseconds.
SMALL = 2**17


def canonical(problem):
    """The same problem in canonical form where it is small and its rows have features; else as it is."""
    found = None if problem.rows.is_gram else merged(problem.rows, problem.y, problem.instance)
    if found is None:
        return problem
    which, instance = found
    return Problem(problem.rows.select(which), taken(problem.y, which), problem.n_classes, instance,
                   taken(problem.factor, which))


def merged(rows, y, instance):
    """(numbers of the different rows in canonical order, their summed weights); None where they are many.

    Rows of other storage and precision, but of the same values, come to stand in the same order.
    """
    return rows.merged(y, instance) if rows.m * (rows.n + 2) <= SMALL else None
