"""Multi-class support vector machine of Xu, Liu, Huo, Deng, Nie and Huang (IJCAI 2017).

    P(W, b) = lambda sum_{j<l} ||w_j - w_l||^2 + sum_i sum_{l != y_i} (1 - t_il)_+,
    t_il = (w_{y_i} - w_l).x_i + b_{y_i} - b_l

as Nie, Hao and Wang (AAAI 2024) restate it, for whom it is M3SVM with p = 2. So it is up to the smoothed corner, and at
lambda = (k + 1)/(2 k C) it has the classifier of M-SVM (msvm.py): two names of one machine.
"""

from tools.rivals.pairwise import PairwiseHinge


class Xu2017(PairwiseHinge):
    """The machine of Xu et al.

    Parameters
    ----------
    lam : float
        lambda.
    delta, tol, max_iter
        As of MSVM.
    """

    unit = 1.0

    def __init__(self, *, lam=1e-3, delta=1e-4, tol=1e-4, max_iter=20_000):
        self.lam, self.delta, self.tol, self.max_iter = lam, delta, tol, max_iter

    def weight(self, k):
        return self.lam
