"""marginlinear: linear and kernel classifiers that optimise the margin distribution, with certificates.

Names are imported when first used, so that `margin-train --help` pays for none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear._version import version as __version__

# What a type checker reads of the names below.
if TYPE_CHECKING:
    from marginlinear.api import train
    from marginlinear.data.label_sets import LabelSets
    from marginlinear.data.report import DataReport, check
    from marginlinear.errors import ConvergenceWarning, DataError, Interrupted
    from marginlinear.export import from_liblinear, to_c, to_liblinear, to_onnx, to_sql
    from marginlinear.libsvm import dump_libsvm, load_libsvm
    from marginlinear.margins import MarginReport, margin_report
    from marginlinear.model import KernelModel, Model, MultiLabelModel, RegressionModel
    from marginlinear.modelfile import load_model, save_model
    from marginlinear.problem import Info, Progress
    from marginlinear.residuals import ResidualReport, residual_report
    from marginlinear.selection import cross_validate, out_of_fold, search
    from marginlinear.selection.advising import advice
    from marginlinear.store import Store

_HOME = {
    "load_libsvm": "marginlinear.libsvm",
    "dump_libsvm": "marginlinear.libsvm",
    "train": "marginlinear.api",
    "advice": "marginlinear.selection.advising",
    "Model": "marginlinear.model",
    "KernelModel": "marginlinear.model",
    "MultiLabelModel": "marginlinear.model",
    "RegressionModel": "marginlinear.model",
    "LabelSets": "marginlinear.data.label_sets",
    "DataReport": "marginlinear.data.report",
    "check": "marginlinear.data.report",
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
    "to_onnx": "marginlinear.export",
    "to_c": "marginlinear.export",
    "to_sql": "marginlinear.export",
    "to_liblinear": "marginlinear.export",
    "from_liblinear": "marginlinear.export",
}

__all__ = ["ConvergenceWarning", "DataError", "DataReport", "Info", "Interrupted", "KernelModel", "LabelSets",
           "MarginReport", "Model", "MultiLabelModel", "Progress", "RegressionModel", "ResidualReport", "Store",
           "__version__", "advice", "check", "cross_validate", "dump_libsvm", "from_liblinear", "load_libsvm",
           "load_model", "margin_report", "out_of_fold", "residual_report", "save_model", "search", "to_c",
           "to_liblinear", "to_onnx", "to_sql", "train"]


# To a type checker it would stand for any name.
if not TYPE_CHECKING:
    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module 'marginlinear' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
