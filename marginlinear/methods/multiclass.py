"""More than two classes by binary problems: one column of weights for each."""


def fit(method, problem, params, run, how):
    """Solution of the binary `method` for a problem of k > 2 classes; `how` is ovr, ovo or ecoc."""
    raise NotImplementedError
