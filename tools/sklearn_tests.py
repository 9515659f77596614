#!/usr/bin/env python3
"""Runs scikit-learn's own tests, which its wheel ships, with the classes of marginlinear.sklearn in place of its own.

    tools/sklearn_tests.py                               # all modules of MODULES
    tools/sklearn_tests.py sklearn.svm.tests.test_svm    # this one
    tools/sklearn_tests.py -- -x -k probability          # what follows goes to pytest

Before a test module is imported the names of DROP_INS are those of marginlinear.sklearn, wherever scikit-learn has
them: its own code goes on with its own classes only where these are defined.

tools/sklearn_tests.txt lists what is expected to fail, a test a line after the reason, for the version of scikit-learn
in its first line. All others have to pass, and those have to fail: the exit code says whether it is so. At the end
comes a table of passed, listed and failed tests of each module.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".txt")
DROP_INS = {
    "sklearn.linear_model": ("LogisticRegression",),
    "sklearn.svm": ("LinearSVC", "LinearSVR", "NuSVC", "NuSVR", "OneClassSVM", "SVC", "SVR"),
}
MODULES = (
    "sklearn.svm.tests.test_svm",
    "sklearn.svm.tests.test_sparse",
    "sklearn.linear_model.tests.test_logistic",
    "sklearn.ensemble.tests.test_bagging",
    "sklearn.ensemble.tests.test_stacking",
    "sklearn.ensemble.tests.test_voting",
    "sklearn.ensemble.tests.test_weight_boosting",
    "sklearn.feature_selection.tests.test_from_model",
    "sklearn.feature_selection.tests.test_rfe",
    "sklearn.feature_selection.tests.test_sequential",
    "sklearn.inspection.tests.test_partial_dependence",
    "sklearn.inspection.tests.test_permutation_importance",
    "sklearn.inspection._plot.tests.test_boundary_decision_display",
    "sklearn.model_selection.tests.test_search",
    "sklearn.model_selection.tests.test_successive_halving",
    "sklearn.model_selection.tests.test_validation",
    "sklearn.model_selection.tests.test_classification_threshold",
    "sklearn.semi_supervised.tests.test_self_training",
    "sklearn.tests.test_calibration",
    "sklearn.tests.test_multiclass",
    "sklearn.tests.test_multioutput",
    "sklearn.tests.test_pipeline",
)


def replaced():
    """(module, name, scikit-learn's class, ours) of every place where a class of DROP_INS stands."""
    import marginlinear.sklearn as ours

    theirs = {getattr(sys.modules[home], name): getattr(ours, name) for home, names in DROP_INS.items()
              for name in names}
    for module in [m for key, m in sys.modules.items() if key.partition(".")[0] == "sklearn"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value in theirs:
                yield module, name, value, theirs[value]


def replace():
    """Put ours everywhere; returns what the modules that define the classes had."""
    defined = []
    for module, name, value, other in list(replaced()):
        setattr(module, name, other)
        if value.__module__ == module.__name__:
            defined.append((module, name, value))
    return defined


def listed():
    """(version, {test: reason}) of the list. A test without its brackets stands for all of its cases."""
    version, reason, found = None, "", {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("scikit-learn "):
            version = line.removeprefix("scikit-learn ")
        elif line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            found[line] = reason
    return version, found


class Plugin:
    """Of pytest: replaces the classes, expects what is listed, counts."""

    def __init__(self):
        self.version, self.listed = listed()
        self.counts, self.used = defaultdict(Counter), set()

    def pytest_configure(self, config):
        import sklearn

        if sklearn.__version__ != self.version:
            print(f"scikit-learn is {sklearn.__version__}, the list was made with {self.version}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Test modules may import from where the classes are defined too."""
        defined = replace()
        try:
            return (yield)
        finally:
            for module, name, value in defined:
                setattr(module, name, value)

    def pytest_collection_modifyitems(self, items):
        for item in items:
            name = short(item.nodeid)
            entry = next((one for one in (name, name.partition("[")[0]) if one in self.listed), None)
            if entry is not None:
                self.used.add(entry)
                item.add_marker(pytest.mark.xfail(reason=self.listed[entry], strict=True))

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or (report.when == "setup" and not report.passed):
            kind = "listed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
            self.counts[short(report.nodeid).partition("::")[0]][kind] += 1

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("scikit-learn's tests with marginlinear's classes")
        kinds = "passed", "listed", "failed", "skipped"
        total = Counter()
        for module, counts in sorted(self.counts.items()):
            total += counts
            terminalreporter.write_line(f"{module:60}" + "".join(f"{counts[k]:5} {k}" for k in kinds))
        terminalreporter.write_line(f"{'all':60}" + "".join(f"{total[k]:5} {k}" for k in kinds))


def short(nodeid):
    """svm/tests/test_svm.py::test_x, wherever scikit-learn is."""
    path, colons, test = nodeid.partition("::")
    return path.rpartition("sklearn/")[2] + colons + test


def main(args=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", help="default: all")
    args = sys.argv[1:] if args is None else args
    args, _, rest = (args, None, []) if "--" not in args else (args[:args.index("--")], None, args[args.index("--") + 1:])
    modules = parser.parse_args(args).modules or MODULES
    sys.path.insert(0, str(ROOT))
    os.chdir("/")
    return pytest.main(["--pyargs", *modules, "-q", "-p", "no:cacheprovider", "-c", os.devnull, *rest],
                       plugins=[Plugin()])


if __name__ == "__main__":
    sys.exit(main())
