"""Sparse multinomial logistic regression (Krishnapuram et al., PAMI 2005), all classes penalised.

    P(W) = sum_l ||w_l||_1 + sum_i C_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))

    D(p) = sum_i C_i H(p_i),      p_i in the simplex,  |sum_i C_i ([l = y_i] - p_il) x_ij| <= 1 for all l and j

With `penalty` group the k weights v_j of a feature are 0 together (Vincent and Hansen, CSDA 2014):

    P(W) = sum_j ||v_j||_2 + the same losses,      ||sum_i C_i (e_{y_i} - p_i) x_ij||_2 <= 1 for all j

With `l1_ratio` r, r times the penalty and (1 - r)/2 ||W||^2. The paper fixes the weights of one class at 0; here none
is special.
"""

from __future__ import annotations

from marginlinear import params as P
from marginlinear.algorithms.sparse_weights import fit_classes
from marginlinear.registry import Method

METHOD = Method(
    name="smlr",
    summary="multinomial logistic regression, sparse weights",
    objective="sum_l ||w_l||_1 + C sum_i log(1 + sum_{l != y_i} exp(w_l.x_i - w_{y_i}.x_i))",
    reference="B. Krishnapuram, L. Carin, M. A. T. Figueiredo and A. J. Hartemink, Sparse Multinomial Logistic "
              "Regression, PAMI 2005",
    params=(P.C, P.PENALTY, P.L1_RATIO, P.FREE_BIAS),
    fit=fit_classes,
    joint=True,
    kernels=False,
    routes=("auto",),
    sparse=True,
    probabilities="softmax",
)
