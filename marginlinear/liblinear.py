"""LIBLINEAR's solvers: their numbers after `-s`, and their names in model files."""

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
OTHERS = {
    11: "L2R_L2LOSS_SVR",
    12: "L2R_L2LOSS_SVR_DUAL",
    13: "L2R_L1LOSS_SVR_DUAL",
    21: "ONECLASS_SVM",
}
SOLVERS = {**CLASSIFIERS, **OTHERS}
# Solver -> another one with the same objective and so the same model, by another algorithm.
SAME = {2: 1, 7: 0}
JOINT = CLASSIFIERS[4]  # k columns of weights even for two classes
SIGN = CLASSIFIERS[1]  # one column for two classes, positive for the first label
CODED = "MARGINLINEAR"  # columns with codes: a name that LIBLINEAR does not know, so that it refuses the file
