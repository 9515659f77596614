"""What an installed wheel has to do before it is uploaded: train, save, load, predict, in Python and by the commands.

    python tools/smoke.py

It needs no more than the wheel brings, and runs from an empty folder: the package is the installed one, never the
sources beside this file.
"""

import contextlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy as np

METHODS = {"mcodm": {}, "cs": {}, "l2svc": {}, "softmax": {}, "l1lr": {}, "m3svm": {}, "ldm": {"kernel": "rbf"}}
CLASSES = 3


def rows(number, rng):
    """Rows about one centre for each class, a half of the noise left out."""
    y = rng.integers(CLASSES, size=number)
    noise = rng.normal(size=(number, 6)) * (rng.random((number, 6)) < 0.5)
    return 4.0 * np.eye(CLASSES, 6)[y] + noise, y


def in_python(ml, X, y, Xt, yt):
    for solver, options in METHODS.items():
        model = ml.train(X, y, solver=solver, **options)
        path = f"{solver}.model"
        ml.save_model(model, path)
        again = ml.load_model(path)
        found = model.predict(Xt)
        assert model.info.status == "converged", f"{solver}: {model.info.status}"
        assert (again.predict(Xt) == found).all(), f"{solver}: the file predicts otherwise"
        accuracy = (found == yt).mean()
        assert accuracy > 0.9, f"{solver}: accuracy {accuracy}"
        print(f"{solver}: accuracy {accuracy:.3f}, certificate {model.info.certificate:.2g}")


def by_commands(ml, X, y, Xt):
    ml.dump_libsvm(X, y, "rows")
    ml.dump_libsvm(Xt, np.zeros(len(Xt), dtype=int), "others")
    scripts = sysconfig.get_path("scripts")
    for words in (["margin-train", "-s", "mcodm", "-q", "rows", "model"],
                  ["margin-predict", "others", "model", "found"], ["margin-inspect", "model", "rows"]):
        words[0] = os.path.join(scripts, words[0])
        print(subprocess.run(words, check=True, capture_output=True, text=True).stdout.partition("\n")[0])
    found = np.loadtxt("found", dtype=int)
    assert (found == ml.train(X, y, solver="mcodm").predict(Xt)).all(), "the commands predict otherwise than Python"


def main():
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        import marginlinear as ml

        sources = Path(__file__).resolve().parents[1] / "marginlinear"
        assert sources not in Path(ml.__file__).resolve().parents, f"{ml.__file__} is not an installed package"
        gil = getattr(sys, "_is_gil_enabled", lambda: True)()
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            assert not gil, "a module of the package brings the GIL back"
        print(f"marginlinear {ml.__version__}, Python {sys.version.split()[0]}, {sys.platform}, "
              f"{'with' if gil else 'without'} the GIL")
        rng = np.random.default_rng(0)
        X, y = rows(120, rng)
        Xt, yt = rows(60, rng)
        in_python(ml, X, y, Xt, yt)
        by_commands(ml, X, y, Xt)


if __name__ == "__main__":
    main()
