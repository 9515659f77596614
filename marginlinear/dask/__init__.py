"""Fits over the rows on the workers of a Dask cluster (extra `[dask]`): the same certified optimum.

    from dask.distributed import Client
    import marginlinear.dask as mld

    client = Client("tcp://scheduler:8786")
    model = mld.train(X, y, solver="l2svc", client=client)

The model is one like any other: it needs no Dask to predict, to be saved or pickled.
"""

from typing import TYPE_CHECKING

from marginlinear.errors import PartitionWarning, needed

try:
    import dask  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(f"{needed('marginlinear.dask needs dask and distributed', 'dask')} ({error})",
                      name=error.name) from error

from marginlinear.dask.prediction import decision_function, predict, predict_proba
from marginlinear.dask.training import cross_validate, train

if TYPE_CHECKING:
    from marginlinear.dask.estimator import DaskMarginClassifier, DaskMarginRegressor

__all__ = ["DaskMarginClassifier", "DaskMarginRegressor", "PartitionWarning", "cross_validate", "decision_function",
           "predict", "predict_proba", "train"]


# To a type checker it would stand for any name.
if not TYPE_CHECKING:
    def __getattr__(name):
        if name not in ("DaskMarginClassifier", "DaskMarginRegressor"):
            raise AttributeError(f"module 'marginlinear.dask' has no attribute '{name}'")
        # Workers import this package, and have no use for scikit-learn, which may be 130 MB of memory for each.
        from marginlinear.dask import estimator

        return getattr(estimator, name)
