"""The Gram matrix of a rival that has a kernel."""

from sklearn.metrics.pairwise import pairwise_kernels


def gram(X, Z, kernel, gamma):
    """k(x, z) of each row of X and of Z: "linear", or "rbf", exp(-gamma ||x - z||^2), gamma = None: 1/features."""
    if kernel not in ("linear", "rbf"):
        raise ValueError(f"kernel = {kernel!r} is not allowed: give 'linear' or 'rbf'")
    of_rbf = {"gamma": gamma} if kernel == "rbf" else {}
    return pairwise_kernels(X, Z, metric=kernel, **of_rbf)
