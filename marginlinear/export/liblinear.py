"""Models of LIBLINEAR's own Python package, from and to ours: by way of model files, which are the same for both."""

import os
import tempfile
from importlib import import_module

from marginlinear.export.functions import checked_model
from marginlinear.modelfile import load_model, save_model
from marginlinear.modelfile.text import C_INT


def from_liblinear(found):
    """The Model of one that LIBLINEAR's Python package trained or loaded.

    Parameters
    ----------
    found : liblinear.liblinear.model
        As `train`, `load_model` and `toPyModel` of the package liblinear-official return it.

    Returns
    -------
    Model or RegressionModel
        It predicts as the other does; `info` is None, and `solver` LIBLINEAR's name of it.

    Raises
    ------
    TypeError
        For anything else.
    """
    module = import_module(type(found).__module__)
    library = getattr(module, "liblinear", None)
    if not hasattr(library, "save_model"):
        raise TypeError(f"found is a {type(found).__name__}: give a model of the package liblinear-official")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        if library.save_model(os.fsencode(path), found) != 0:
            raise OSError(f"LIBLINEAR could not write the model to {folder}")
        return load_model(path)


def to_liblinear(model):
    """The model as an object of LIBLINEAR's Python package, liblinear-official, which has to be installed.

    Its `predict` then gives the same labels: those of two classes that LIBLINEAR's joint solver has two columns for
    by the first of them.

    Parameters
    ----------
    model : Model
        Linear, with integers of 32 bits for labels, or a regression.

    Returns
    -------
    liblinear.liblinear.model

    Raises
    ------
    ImportError
        Without the package liblinear-official.
    TypeError
        For what is no Model.
    ValueError
        For what LIBLINEAR has no model of: kernels, words and fractions for labels, votes of several columns
        (multiclass = "ovo" and "ecoc") and rows of unit length.
    """
    checked_model(model)
    for fault, fix in faults(model):
        raise ValueError(f"to_liblinear: LIBLINEAR has no models of {fault}: {fix}")
    try:
        from liblinear.liblinear import liblinear, toPyModel
    except ModuleNotFoundError as error:
        if error.name.split(".")[0] != "liblinear":
            raise
        raise ModuleNotFoundError("to_liblinear needs LIBLINEAR's own package: pip install liblinear-official",
                                  name="liblinear") from error
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        save_model(model, path)
        return toPyModel(liblinear.load_model(os.fsencode(path)))


def faults(model):
    """(what LIBLINEAR does not know of a model, what to do) of each such thing."""
    if hasattr(model, "kernel"):
        yield "kernels", "save_model writes a file for LIBSVM's svm-predict"
    if model.scaling is not None:
        yield "rows of unit length", "divide the rows by their lengths before train, in place of scale = 'unit'"
    if model.classes is not None and model.voted:
        yield "columns that vote", "take multiclass = 'ovr'"
    if model.classes is not None and not all(
            not isinstance(label, str) and label == int(label) and -C_INT <= label < C_INT
            for label in model.classes.tolist()):
        yield "labels other than 32-bit integers", "number the classes"
