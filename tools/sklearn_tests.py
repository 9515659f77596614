#!/usr/bin/env python3
"""Runs scikit-learn's own tests, which its wheel ships, with the classes of marginlinear.sklearn in place of its own.

    tools/sklearn_tests.py                               # all modules of MODULES
    tools/sklearn_tests.py sklearn.svm.tests.test_svm    # this one
    tools/sklearn_tests.py -- -x -k probability          # what follows goes to pytest

Before a test module is imported the names of DROP_INS are those of marginlinear.sklearn, wherever scikit-learn has
them: its own code goes on with its own classes only where these are defined.

tools/sklearn_tests.txt lists what is expected to fail, tests after the reason, for the version of scikit-learn in its
first line. All others have to pass, and those have to be there and to fail (with another version they may): the exit
code says whether it is so. At the end comes a table of passed, listed and failed tests of each module.
"""

import argparse
import importlib.util
import os
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
    "sklearn.tests.test_metaestimators",
    "sklearn.tests.test_pipeline",
    "sklearn.frozen.tests.test_frozen",
    "sklearn.metrics.tests.test_score_objects",
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
        import sklearn

        version, self.listed = listed()
        self.strict = sklearn.__version__ == version
        self.counts, self.unused = defaultdict(Counter), set(self.listed)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Test modules may import from where the classes are defined too."""
        defined = replace()
        try:
            return (yield)
        finally:
            for module, name, value in defined:
                setattr(module, name, value)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        modules = set()
        for item in items:
            name = short(item.nodeid)
            modules.add(name.partition("::")[0])
            entry = next((one for one in (name, name.partition("[")[0]) if one in self.listed), None)
            if entry is not None:
                self.unused.discard(entry)
                item.add_marker(pytest.mark.xfail(reason=self.listed[entry], strict=self.strict))
        self.unused = {entry for entry in self.unused if self.strict and entry.partition("::")[0] in modules}

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
        for entry in sorted(self.unused):
            terminalreporter.write_line(f"listed, but not there: {entry}")

    def pytest_sessionfinish(self, session):
        if self.unused:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def short(nodeid):
    """svm/tests/test_svm.py::test_x, as the list has it."""
    return nodeid.removeprefix("sklearn/")


def main(args=None):
    args = sys.argv[1:] if args is None else args
    own, rest = (args[:args.index("--")], args[args.index("--") + 1:]) if "--" in args else (args, [])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("modules", nargs="*", help="default: all of them; what follows -- goes to pytest")
    modules = parser.parse_args(own).modules or MODULES
    # Not this folder, whose modules are no part of what is tested.
    del sys.path[0]
    where = Path(importlib.util.find_spec("sklearn").origin).parents[1]
    return pytest.main(["--pyargs", *modules, "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(where),
                        *rest], plugins=[Plugin()])


if __name__ == "__main__":
    sys.exit(main())
