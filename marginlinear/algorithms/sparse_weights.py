"""The fits of methods with sparse weights; it imports their engine when it is called."""


def sparse_fit_of(loss):
    """The `fit` of a binary method with sparse weights: of a smooth `loss`, as Method has it, with the parameters
    `l1_ratio` and `free_bias`."""
    def fit(problem, params, run):
        from marginlinear.algorithms.working_sets import SparseFit

        ratio = params["l1_ratio"]
        return SparseFit(problem, run, *loss(problem, params), ratio, 1 - ratio, params["free_bias"]).convex()

    return fit
