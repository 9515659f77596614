"""marginlinear: linear and kernel classifiers that optimise the margin distribution, with certificates.

Names are imported when first used, so that `margin-train --help` pays for none of them.
"""

from marginlinear._version import version as __version__

_HOME = {
    "load_libsvm": "marginlinear.libsvm",
    "dump_libsvm": "marginlinear.libsvm",
    "train": "marginlinear.api",
    "Model": "marginlinear.model",
    "KernelModel": "marginlinear.model",
    "MultiLabelModel": "marginlinear.model",
    "RegressionModel": "marginlinear.model",
    "LabelSets": "marginlinear.data.label_sets",
    "load_model": "marginlinear.modelfile",
    "save_model": "marginlinear.modelfile",
    "MarginReport": "marginlinear.margins",
    "margin_report": "marginlinear.margins",
    "ResidualReport": "marginlinear.residuals",
    "residual_report": "marginlinear.residuals",
    "ConvergenceWarning": "marginlinear.errors",
    "DataError": "marginlinear.errors",
    "Interrupted": "marginlinear.errors",
    "Info": "marginlinear.problem",
    "Progress": "marginlinear.problem",
    "Store": "marginlinear.store",
    "cross_validate": "marginlinear.selection",
    "out_of_fold": "marginlinear.selection",
    "search": "marginlinear.selection",
}

__all__ = ["ConvergenceWarning", "DataError", "Info", "Interrupted", "KernelModel", "LabelSets", "MarginReport",
           "Model", "MultiLabelModel", "Progress", "RegressionModel", "ResidualReport", "Store", "__version__",
           "cross_validate", "dump_libsvm", "load_libsvm", "load_model", "margin_report", "out_of_fold",
           "residual_report", "save_model", "search", "train"]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'marginlinear' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
