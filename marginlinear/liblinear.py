"""LIBLINEAR's solvers: their numbers after `-s`, and their names in model files."""

from __future__ import annotations

CLASSIFIERS = {
    0: "L2R_LR",
    1: "L2R_L2LOSS_SVC_DUAL",
    2: "L2R_L2LOSS_SVC",
    3: "L2R_L1LOSS_SVC_DUAL",
    4: "MCSVM_CS",
    5: "L1R_L2LOSS_SVC",
    6: "L1R_LR",
    7: "L2R_LR_DUAL",
}
LOGISTIC = tuple(CLASSIFIERS[number] for number in (0, 6, 7))
REGRESSORS = {
    11: "L2R_L2LOSS_SVR",
    12: "L2R_L2LOSS_SVR_DUAL",
    13: "L2R_L1LOSS_SVR_DUAL",
}
ONE_CLASS = {21: "ONECLASS_SVM"}
SOLVERS = {**CLASSIFIERS, **REGRESSORS, **ONE_CLASS}
# Solver -> another one with the same objective and so the same model, by another algorithm.
SAME = {2: 1, 7: 0, 12: 11}
# Solvers, as SAME has them, of which -C finds C, and epsilon; 13 is here the twin of 11.
SEARCHED = (0, 1, 11, 13)
# Those that begin at weights that are given.
STARTED = {0, 2, 11}
JOINT = CLASSIFIERS[4]  # k columns of weights even for two classes
SIGN = CLASSIFIERS[1]  # one column for two classes, positive for the first label
CODED = "MARGINLINEAR"  # columns with codes: a name that LIBLINEAR does not know, so that it refuses the file


def columns_of(name: str, k: int) -> int:
    """Columns of weights that LIBLINEAR reads for k classes after the solver_type `name`."""
    return 1 if k == 2 and name != JOINT else k


def solver_type(number: int | None, k: int, columns: int) -> str:
    """The solver_type of a model file of `columns` columns without codes.

    The name of the solver `number`, whose objective the method has; None for a method of no such number. That, and
    columns that LIBLINEAR would not read after its name, get the name of what decides: several columns, or one's sign.
    """
    by_columns = JOINT if columns == k else SIGN
    name = by_columns if number is None else CLASSIFIERS.get(number, by_columns)
    return name if columns_of(name, k) == columns else by_columns
