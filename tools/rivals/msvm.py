"""Multicategory support vector machine (Bredensteiner and Bennett, Computational Optimization and Applications 1999).

    P(W, b) = 1/2 sum_{j<l} ||w_j - w_l||^2 + 1/2 sum_l ||w_l||^2 + C sum_i sum_{l != y_i} (1 - t_il)_+,
    t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l

At the optimum sum_l w_l = 0, and sum_{j<l} ||w_j - w_l||^2 = k sum_l ||w_l||^2 there: P is C times the objective of
m3svm with p = 2 and lambda = (k + 1)/(2 k C), but for that one's smoothed corner and the weight eps of the offsets. The
corner adds at most m (k - 1) delta/2 to the sum of losses, which is part of the certificate here.
"""

from tools.rivals.pairwise import PairwiseHinge


class MSVM(PairwiseHinge):
    """M-SVM.

    Parameters
    ----------
    C : float
    delta : float
        Width of the smoothed corner.
    tol : float
    max_iter : int

    Attributes
    ----------
    coef_ : array of shape (k, n_features);  intercept_ : array of shape (k,)
    objective_, certificate_ : float
        P, and how far it may be above its least value, up to eps (||W||^2 + ||b||^2) there.
    """

    def __init__(self, *, C=1.0, delta=1e-4, tol=1e-4, max_iter=20_000):
        self.C, self.delta, self.tol, self.max_iter = C, delta, tol, max_iter

    def weight(self, k):
        return (k + 1) / (2 * k * self.C)

    @property
    def unit(self):
        return self.C
