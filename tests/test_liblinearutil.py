"""LIBLINEAR's Python names: the same calls give what LIBLINEAR's give, what it prints or lets pass is raised."""

import bz2
import ctypes
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import liblinearutil as ours

VEHICLE = Path(__file__).parent.parent / "data" / "vehicle"
NUMBERS = {"-s 1": "l2svc", "-s 3": "l1svc", "-s 4": "cs"}


@pytest.fixture(scope="module")
def theirs():
    return pytest.importorskip("liblinear.liblinearutil", reason="pip install liblinear-official")


@pytest.fixture(scope="module")
def vehicle():
    """(labels, rows as dicts) of 4 classes."""
    return ours.svm_read_problem(VEHICLE)


def two_classes(y):
    return [1 if label == 2 else -1 for label in y]


@pytest.mark.parametrize("options", ["-s 1", "-s 3 -B 1 -c 0.1", "-s 4 -c 0.1", "-s 1 -c 0.1 -w1 3 -w-1 0.5",
                                     "-s 4 -c 0.1 -w1 3 -w2 0.5"])
def test_same_calls_same_answers(theirs, vehicle, options):
    y, x = vehicle
    y = two_classes(y) if "-w-1" in options else y
    found = ours.train(y, x, f"{options} -q -e 1e-8")
    known = theirs.train(y, x, f"{options} -q -e 1e-8")
    assert found.get_nr_class() == known.get_nr_class()
    assert found.get_nr_feature() == known.get_nr_feature()
    assert sorted(found.get_labels()) == sorted(known.get_labels())
    for label in known.get_labels():
        i, j = found.get_labels().index(label), known.get_labels().index(label)
        assert found.get_decfun(i)[0] == pytest.approx(known.get_decfun(j)[0], rel=0.02, abs=0.02)
        assert found.get_decfun_bias(i) == pytest.approx(known.get_decfun_bias(j), rel=0.02, abs=0.02)
    assert np.mean(np.equal(ours.predict(y, x, found, "-q")[0], theirs.predict(y, x, known, "-q")[0])) > 0.99


# The calls of LIBLINEAR's python/README, with the solvers that marginlinear has.
SCRIPT = """\
from MODULE.liblinearutil import *

y, x = svm_read_problem(path)
m = train(y[:600], x[:600], '-c 4 -q -e 1e-6')
p_label, p_acc, p_val = predict(y[600:], x[600:], m)

y, x = [1, -1], [[1, 0, 1], [-1, 0, -1]]
y, x = [1, -1], [{1: 1, 3: 1}, {1: -1, 3: -1}]
prob = problem(y, x)
param = parameter('-s 3 -c 4 -B 1 -q -e 1e-6')
n = train(prob, param)
save_model(folder + '/two.model', n)
n = load_model(folder + '/two.model')
two = predict(y, x, n, '-b 0')
ACC, MSE, SCC = evaluations(y, two[0])

y, x = svm_read_problem(path, return_scipy=True)
scale_param = csr_find_scale_param(x, lower=0)
scaled_x = csr_scale(x, scale_param)
ovr = train(y, scaled_x, ['-c', '1', '-q', '-e', '1e-9'] if lists else '-c 1 -q -e 1e-9')
scaled = predict(y, scaled_x, ovr, '-q')
accuracy = train(y, scaled_x, '-v 3 -q')

x0, max_idx = gen_feature_nodearray({1: 1, 3: 1})
nodes = [(node.index, node.value) for node in x0 if node.index > 0]
node = feature_node(3, 0.5)
text = str(node)
asked = (n.get_nr_feature(), n.get_nr_class(), n.get_labels(), n.is_probability_model(), n.is_regression_model(),
         n.is_oneclass_model(), int(solver_names.MCSVM_CS))
weights = [n.get_decfun_coef(j) for j in (1, 2, 3)], n.get_decfun_bias(), n.get_decfun()
"""


def test_liblinears_own_script(theirs, tmp_path, capsys):
    answers, printed = [], []
    for module, lists in (("liblinear", False), ("marginlinear", False), ("marginlinear", True)):
        names = {"path": str(VEHICLE), "folder": str(tmp_path), "lists": lists}
        exec(SCRIPT.replace("MODULE", module), names)
        answers.append(names)
        printed.append(capsys.readouterr().out.splitlines())
    known, *others = answers
    for found in others:
        assert found["text"] == known["text"] == "3:0.5"
        for name in ("two", "ACC", "MSE", "SCC", "max_idx", "nodes", "asked", "weights"):
            assert flat(found[name]) == pytest.approx(flat(known[name]), rel=1e-5, abs=1e-5), name
        assert np.mean(np.equal(found["p_label"], known["p_label"])) > 0.99
        assert found["p_acc"] == pytest.approx(known["p_acc"], rel=0.02)
        assert np.shape(found["p_val"]) == np.shape(known["p_val"]) == (246, 4)
        assert np.mean(np.equal(found["scaled"][0], known["scaled"][0])) > 0.99
        columns = [found["ovr"].get_labels().index(label) for label in known["ovr"].get_labels()]
        np.testing.assert_allclose(np.array(found["scaled"][2])[:, columns], known["scaled"][2], atol=4e-3)
        assert found["accuracy"] == pytest.approx(known["accuracy"], abs=5)
    # Accuracy of three predictions, then of the folds: the same words.
    assert [line.partition("=")[0] for line in printed[0]] == [line.partition("=")[0] for line in printed[1]]
    assert printed[0][1] == printed[1][1] == printed[2][1] == "Accuracy = 100% (2/2) (classification)"


def flat(value):
    """All that a nested answer holds, as a list."""
    return [entry for part in value for entry in flat(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("options", ["-s 1", "-s 3 -B 1", "-s 4 -B 2", "-s mcodm", "-s ldm"])
@pytest.mark.parametrize("binary", [False, True])
def test_both_read_the_others_file(theirs, vehicle, tmp_path, capsys, options, binary):
    y, x = vehicle
    y = two_classes(y) if binary else y
    made = [(ours, ours.train(y, x, options))]
    if options[3].isdigit():
        made.append((theirs, theirs.train(y, x, options + " -q")))
    for module, model in made:
        path = str(tmp_path / "model")
        module.save_model(path, model)
        capsys.readouterr()
        answers, printed = [], []
        for reader in (ours, theirs):
            answers.append((reader.load_model(path), reader.predict(y, x, reader.load_model(path))))
            printed.append(capsys.readouterr().out)
        (found, ((labels, metrics, values))), (known, (their_labels, their_metrics, their_values)) = answers
        assert printed[0] == printed[1]
        assert labels == their_labels
        assert metrics == pytest.approx(their_metrics, rel=1e-12)
        np.testing.assert_allclose(values, their_values, rtol=1e-10, atol=1e-12)
        assert found.get_labels() == known.get_labels()
        for j in range(known.get_nr_class()):
            assert found.get_decfun(j)[0] == pytest.approx(known.get_decfun(j)[0], rel=1e-9)
            assert found.get_decfun_bias(j) == pytest.approx(known.get_decfun_bias(j), rel=1e-11)
        assert found.get_decfun_coef(99, 1) == known.get_decfun_coef(99, 1) == 0
        for question in ("is_probability_model", "is_regression_model", "is_oneclass_model"):
            assert getattr(found, question)() is getattr(known, question)()


@pytest.mark.parametrize("options", ["-s 0", "-s 6", "-s 7 -B 1"])
@pytest.mark.parametrize("binary", [False, True])
def test_probabilities_of_liblinears_logistic_models(theirs, vehicle, tmp_path, options, binary):
    y, x = vehicle
    y = two_classes(y) if binary else y
    path = str(tmp_path / "model")
    theirs.save_model(path, known := theirs.train(y, x, options + " -q"))
    found = ours.load_model(path)
    assert found.is_probability_model()
    labels, _, values = ours.predict(y, x, found, "-b 1 -q")
    their_labels, _, their_values = theirs.predict(y, x, known, "-b 1 -q")
    assert labels == their_labels
    np.testing.assert_allclose(values, their_values, rtol=1e-10)


@pytest.mark.parametrize("binary", [False, True])
def test_probabilities_of_ours(vehicle, binary):
    y, x = vehicle
    y = two_classes(y) if binary else y
    found = ours.train(y, x, "-s 3 --probability --scale maxabs")
    assert found.is_probability_model() and not ours.train(y, x, "-s 3").is_probability_model()
    labels, _, values = ours.predict(y, x, found, "-b 1 -q")
    assert labels == ours.predict(y, x, found, "-q")[0]
    assert all(row[found.get_labels().index(label)] == max(row) for row, label in zip(values, labels, strict=True))
    np.testing.assert_allclose(np.sum(values, axis=1), 1)
    expected = found.classifier.predict_proba(ours.problem(y, x).x)
    np.testing.assert_array_equal(np.sort(values), np.sort(expected))


def names_of(thing):
    """Public names of an object of LIBLINEAR's: methods, fields of the C structure, attributes."""
    names = {*dir(type(thing)), *vars(thing)} - {*dir(ctypes.Structure), *dir(object)}
    return {name for name in names if not name.startswith("_")}


# LIBLINEAR's names that are refused, by what they belong to: all others are there.
REFUSED = {"problem": {"x_space", "rowptr"}, "model": {"rho"},
           "parameter": {"print_func"}}


def test_same_names(theirs, vehicle):
    """All names of the module and of its objects: there, or refused in words that tell why."""
    y, x = vehicle
    assert set(theirs.__all__) - {"liblinear"} == set(ours.__all__)
    with pytest.raises(ImportError, match="the C library itself, is not here"):
        exec("from marginlinear.liblinearutil import liblinear")
    sparse_x = sparse.csr_matrix(ours.problem(y, x).x)
    known, found = ((module.problem(np.array(y), sparse_x), module.parameter("-q"),
                     module.train(y, x, "-q")) for module in (theirs, ours))
    for their, our in zip(known, found, strict=True):
        refused = REFUSED[type(our).__name__]
        assert refused <= names_of(their)
        for name in names_of(their) - refused:
            getattr(our, name)
        for name in refused:
            for use in (getattr, lambda thing, name: setattr(thing, name, None)):
                with pytest.raises(AttributeError, match=f"^{name}: .* "):
                    use(our, name)


@pytest.mark.parametrize("options", [None, "", "-s 3 -c 4 -e 1e-4 -B 1", "-s 4 -w1 2 -w-1 0.5 -v 3", "-c 2 -q", "-v 3"])
def test_parameters_read_as_liblinears(theirs, options):
    found, known = ours.parameter(options), theirs.parameter(options)
    for name in ("solver_type", "C", "bias", "nr_weight", "flag_cross_validation", "nr_fold", "flag_C_specified",
                 "flag_solver_specified", "flag_find_parameters"):
        assert getattr(found, name) == getattr(known, name), name
    assert found.weight_label == known.weight_label[:known.nr_weight]
    assert found.weight == known.weight[:known.nr_weight]
    assert found.solver_type is ours.solver_names(int(known.solver_type))
    # The tolerance is that of another measure: only what was given is the same.
    assert found.eps == (known.eps if options and "-e" in options else 1e-3)
    shown, told = ({line.partition(":")[0].strip() for line in str(param).splitlines()} for param in (known, found))
    assert shown - told == {"solver_type", "nr_weight", "weight_label", "weight", "flag_C_specified",
                            "flag_p_specified", "print_func"}
    assert f"C: {found.C}" in str(found).splitlines()
    found.set_to_default_values()
    assert str(found) == str(ours.parameter()) and (found.C, found.solver) == (1, "l2svc")
    found.parse_options("-s 4 -c 3")
    assert (found.solver_type, found.C) == (ours.solver_names.MCSVM_CS, 3)
    found.parse_options("-C -v 4")
    assert found.flag_find_parameters and found.nr_fold == 4 and ours.parameter("-C").nr_fold == 5


def test_parameters_are_set_as_liblinears(vehicle):
    y, x = vehicle
    param = ours.parameter("-q")
    param.solver_type, param.C = ours.solver_names.MCSVM_CS, 4
    assert param.solver == "cs"
    trained = ours.train(ours.problem(y, x), param)
    np.testing.assert_array_equal(trained.w, ours.train(y, x, "-s 4 -c 4").w)
    assert (trained.param.solver_type, trained.param.C) == (4, 4)
    param.flag_cross_validation, param.nr_fold = True, 2
    assert ours.train(ours.problem(y, x), param) == ours.train(y, x, "-s 4 -c 4 -v 2")
    param = ours.parameter("-s mcodm --mu 0.5")
    for name, value, error, words in (
            ("solver_type", 1, ValueError, "l2svc has no parameter 'mu'"),
            ("solver_type", 21, ValueError, "oneclass has no parameter 'mu'"),
            ("weight", [1.0], AttributeError, "follows from class_weight: set that"),
            ("flag_C_specified", True, AttributeError, "follows from C: set that"),
            ("cost", 1, AttributeError, "cost")):
        with pytest.raises(error, match=words):
            setattr(param, name, value)
    assert param.solver == "mcodm"
    with pytest.raises(AttributeError, match="LIBLINEAR has no number for mcodm: see solver"):
        param.solver_type  # noqa: B018


@pytest.mark.parametrize("options", ["-s 0", "-s 2 -B 1", "-s 0 -R -B 1", "-s 11", "-s 11 -R"])
@pytest.mark.parametrize("binary", [False, True])
def test_a_start_at_weights(theirs, vehicle, options, binary):
    """init_sol is the w of a model, of LIBLINEAR's too: few sweeps are left, and the same certificate."""
    y, x = vehicle
    y = two_classes(y) if binary or "11" in options else y
    prob, param = ours.problem(y, x), ours.parameter(f"{options} -e 1e-4")
    first = ours.train(prob, param)
    exact = ours.train(prob, f"{options} -e 1e-11")
    param.init_sol = exact.w.tolist()
    again = ours.train(prob, param)
    before, after = first.classifier.info, again.classifier.info
    assert after.converged and after.n_iter < before.n_iter / 2
    assert abs(after.objective - before.objective) <= 1e-4 * before.objective
    if binary and "-R" not in options:
        known = theirs.train(y, x, f"-q {options} -e 1e-8")
        param.init_sol = (ctypes.c_double * len(exact.w))(*known.w[:len(exact.w)])
        assert ours.train(prob, param).classifier.info.n_iter < before.n_iter / 2
    param.init_sol = exact.w[1:]
    with pytest.raises(ValueError, match=f"init_sol has shape .*: {len(exact.w)} numbers are needed"):
        ours.train(prob, param)
    param = ours.parameter("-s 3")
    param.init_sol = exact.w
    with pytest.raises(ValueError, match=r"^Initial-solution .* only for solvers L2R_LR, .*given for l1svc"):
        ours.train(prob, param)


def test_parameters_of_regression_and_of_one_class(theirs, vehicle):
    for options in ("-s 13 -p 0.3 -R", "-s 21 -n 0.2", "-s 0 -R -B 1"):
        found, known = ours.parameter(options), theirs.parameter(options)
        assert found.regularize_bias == known.regularize_bias and not known.init_sol and found.init_sol is None
        assert (found.p if "-p" in options else known.p) == known.p
        assert (found.nu if "-n" in options else known.nu) == known.nu
        assert found.flag_p_specified == known.flag_p_specified
    y, x = vehicle
    param = ours.parameter("-s 0 -B 1")
    param.regularize_bias = 0
    assert param.values["free_bias"] is True and param.regularize_bias == 0
    np.testing.assert_array_equal(ours.train(ours.problem(y, x), param).w, ours.train(y, x, "-s 0 -R -B 1").w)
    param = ours.parameter("-s 21")
    param.nu, param.w_recalc = 0.2, True
    m, known = ours.train(ours.problem(y, x), param), theirs.train(y, x, "-s 21 -n 0.2 -e 1e-6 -q")
    assert m.rho == m.get_decfun_rho() == -m.get_decfun()[1] == pytest.approx(known.get_decfun_rho(), rel=1e-2)


@pytest.mark.parametrize("options", ["-s 1", "-s 1 -B 2", "-s 4 -B 2"])
@pytest.mark.parametrize("binary", [False, True])
def test_fields_of_models_read_as_liblinears(theirs, vehicle, tmp_path, options, binary):
    y, x = vehicle
    path = str(tmp_path / "model")
    ours.save_model(path, trained := ours.train(two_classes(y) if binary else y, x, options))
    for found, known in ((trained, theirs.load_model(path)), (ours.load_model(path), theirs.load_model(path))):
        assert found.label == known.label[:known.nr_class]
        assert (found.nr_class, found.nr_feature, found.bias) == (known.nr_class, known.nr_feature, known.bias)
        np.testing.assert_allclose(found.w, known.w[:len(found.w)], rtol=1e-12)
        assert len(found.w) == (known.nr_feature + (known.bias >= 0)) * (known.nr_class if "4" in options or not binary
                                                                         else 1)
    theirs.save_model(path, theirs.train(y, x, "-q " + options))
    assert ours.load_model(path).param.solver_type == int(options[3])
    with pytest.raises(ValueError, match="a kernel model has no weights"):
        ours.train(y[:50], x[:50], "-s 1 -t 2").w  # noqa: B018


@pytest.mark.parametrize("opener, mode", [(open, "rt"), (open, "rb"), (bz2.open, "rt"), (bz2.open, "rb"),
                                          (lambda path, mode: io.StringIO(path.read_text("ascii")), "rt")],
                         ids=["text", "bytes", "bz2 text", "bz2 bytes", "StringIO"])
def test_files_of_text_and_of_bytes(vehicle, tmp_path, opener, mode):
    path = tmp_path / "vehicle"
    path.write_bytes((bz2.compress if opener is bz2.open else bytes)(VEHICLE.read_bytes()))
    with opener(path, mode) as file:
        assert ours.svm_read_problem(file) == vehicle
    with opener(path, mode) as file:
        # What has been read already is not read again.
        file.readline()
        y, x = ours.svm_read_problem(file, return_scipy=True)
        assert (y == vehicle[0][1:]).all() and x.shape == (845, 18)
    with pytest.raises(ml.DataError, match=r"^<file object>:2:3: "):
        ours.svm_read_problem(io.StringIO("1 1:2 # Größe\n1 0:2\n"))


def test_same_helpers(theirs, vehicle):
    y, x = theirs.svm_read_problem(str(VEHICLE))
    assert vehicle == (y, x)
    their_y, their_x = theirs.svm_read_problem(str(VEHICLE), return_scipy=True)
    y, x = ours.svm_read_problem(VEHICLE, return_scipy=True)
    assert isinstance(x, sparse.csr_matrix) and (x != their_x).nnz == 0
    np.testing.assert_array_equal(y, their_y)
    for lower, upper in ((-1, 1), (0, 1)):
        found = ours.csr_find_scale_param(x, lower, upper)
        known = theirs.csr_find_scale_param(x, lower, upper)
        np.testing.assert_allclose(found["coef"], known["coef"], rtol=1e-14)
        np.testing.assert_allclose(found["offset"], known["offset"], rtol=1e-14)
        np.testing.assert_allclose(ours.csr_scale(x, found).toarray(), theirs.csr_scale(x, known).toarray(), atol=1e-14)
    for ty, pv in (([1, 2, 3], [1, 2, 4]), ([1, 1], [1, 2]), ((0.5, -1, 2), np.array([0, 1, 2]))):
        np.testing.assert_allclose(ours.evaluations(ty, pv), theirs.evaluations(ty, pv), rtol=1e-12)


@pytest.mark.parametrize("solver", [*NUMBERS, "-s mcodm --mu 0.2", "-s ldm -t 2 -g 0.5", "-s odm"])
def test_train_is_marginlinears(vehicle, solver):
    y, x = vehicle
    words = solver.split()
    more = {"--mu": {"mu": 0.2}, "-t": {"kernel": "rbf", "gamma": 0.5}}.get((words + [""] * 3)[2], {})
    found = ours.train(y[:200], x[:200], f"{solver} --seed 3").classifier
    X, labels = ml.load_libsvm(VEHICLE)
    known = ml.train(X[:200], labels[:200], solver=NUMBERS.get(solver, words[1]), seed=3, **more)
    np.testing.assert_array_equal(found.weights, known.weights)
    assert found.params == known.params


def test_ways_to_call(vehicle):
    y, x = vehicle
    words = ["-c", "4", "-e", "1e-4", "-B", "1", "-w1", "2"]
    expected = ours.train(y, x, " ".join(words)).classifier.weights
    param = ours.parameter()
    param.C, param.eps, param.bias = 4, 1e-4, 1
    param.class_weight = {1: 2}
    prob = ours.problem(y, x, bias=1)
    assert (prob.l, prob.n) == (846, 19)
    for arguments in ((y, x, words), (ours.problem(y, x), " ".join(words)), (ours.problem(y, x), ours.parameter(words)),
                      (y, x, param), (prob, "-c 4 -e 1e-4 -w1 2")):
        np.testing.assert_array_equal(ours.train(*arguments).classifier.weights, expected)
    assert (param.C, param.eps, param.bias) == (4, 1e-4, 1)
    assert (ours.parameter().C, ours.parameter().eps, ours.parameter().bias) == (1, 1e-3, -1)
    assert ours.parameter("-s msvmav").C is None
    assert ours.parameter("-s msvmav").eps == 1e-8


def test_problem_copy_shares_rows(vehicle):
    y, x = vehicle
    prob = ours.problem(y, x)
    other = prob.copy()
    other.y = np.array(two_classes(y))
    other.set_bias(1)
    assert other.x is prob.x and prob.bias == -1
    assert ours.train(other).get_labels() == [1, -1]
    assert ours.train(prob).get_labels() == [1, 2, 3, 4]


STORAGES = {
    "dicts": lambda X: [{j + 1: v for j, v in enumerate(row) if v} for row in X.tolist()],
    "dicts in any order": lambda X: [{j + 1: v for j, v in reversed(list(enumerate(row)))} for row in X.tolist()],
    "lists": lambda X: X.tolist(),
    "lists of several lengths": lambda X: [row if row[-1] else row[:-1] for row in X.tolist()],
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "mixed": lambda X: [dict(enumerate(row, 1)) if i % 2 else np.array(row) for i, row in enumerate(X.tolist())],
    "dense": lambda X: X,
    "nodes": lambda X: [ours.gen_feature_nodearray(row)[0] for row in X.tolist()],
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
}


@pytest.mark.parametrize("storage", STORAGES)
def test_storages(storage):
    X = np.random.default_rng(0).normal(size=(40, 5)).round(2)
    X[np.abs(X) < 0.5] = 0
    X[0, -1] = 1
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    expected = ours.train(y, sparse.csr_array(X))
    x = STORAGES[storage](X)
    for labels in (y, y.tolist(), tuple(y.tolist()), y.astype(float)):
        found = ours.train(labels, x)
        assert found.get_decfun()[0] == pytest.approx(expected.get_decfun()[0], rel=1e-9)
        assert found.get_labels() == [1, -1]
        assert ours.predict(labels, x, found, "-q")[0] == ours.predict([], X, found)[0]


def test_pandas(vehicle):
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    X, y = ml.load_libsvm(VEHICLE)
    frame = pandas.DataFrame(X.toarray())
    found = ours.train(pandas.Series(y), frame, "-s 3")
    assert ours.predict(pandas.Series(y), frame, found, "-q")[1][0] > 70


def test_rows_with_more_and_fewer_features(vehicle):
    y, x = vehicle
    found = ours.train(y, x)
    _, _, expected = ours.predict([], [{1: 0.5}], found)
    assert ours.predict([], [[0.5]], found)[2] == ours.predict([], [{1: 0.5, 1000: 3}], found)[2] == expected


def test_rows_as_nodes_and_models_of_marginlinear(theirs):
    for row in ({1: 1, 3: 0.5}, [0, 2, 0], (np.array([1, 4]), np.array([1.0, 2.0]))):
        for most in (None, 2):
            nodes, largest = ours.gen_feature_nodearray(row, most)
            known, known_largest = theirs.gen_feature_nodearray(row, most)
            assert [str(node) for node in nodes] == [str(node) for node in known][:-2]
            assert largest == known_largest
    found = ours.toPyModel(ml.train(np.eye(2), [1, -1]))
    assert ours.toPyModel(found) is found and found.get_labels() == [1, -1]


def test_models_pickle(vehicle):
    y, x = vehicle
    found = ours.train(y, x, "-s 4")
    again = pickle.loads(pickle.dumps(found))
    assert ours.predict(y, x, again, "-q") == ours.predict(y, x, found, "-q")
    param = pickle.loads(pickle.dumps(ours.parameter("-c 4 -v 3")))
    assert (param.C, param.nr_fold) == (4, 3)


def test_predict_without_labels_has_no_metrics(vehicle, capsys):
    y, x = vehicle
    found = ours.train(y, x)
    capsys.readouterr()
    labels, metrics, _ = ours.predict([], x, found)
    assert labels == ours.predict(y, x, found, "-q")[0]
    assert np.isnan(metrics).all()
    assert not capsys.readouterr().out


def test_cross_validation(vehicle, capsys):
    y, x = vehicle
    accuracy = ours.train(y, x, "-v 3 -s 1 --seed 1")
    assert capsys.readouterr().out == f"Cross Validation Accuracy = {accuracy:g}%\n"
    assert 70 < accuracy < 85
    assert ours.train(y, x, "-v 3 -s 1 --seed 1") == accuracy


def test_search_for_C(vehicle, capsys):
    y, x = vehicle
    best, p, score = ours.train(y, x, "-C -s 1 -v 3 -e 0.01")
    assert capsys.readouterr().out == f"Best C = {best:g}  CV accuracy = {100 * score:g}%\n"
    assert np.log2(best) % 1 == 0 and p == -1
    assert score == pytest.approx(ours.train(y, x, f"-s 1 -v 3 -e 0.01 -c {best}") / 100, abs=0.01)
    best, _, _ = ours.train(y, x, "-C -c 300 -v 3 -e 0.1")
    assert best in (300, 600)
    assert ours.train(y, x, "-C -c 4000 -v 3 -e 0.1")[0] == 4000


def test_unscaled_models_warn(vehicle):
    y, x = vehicle
    with pytest.warns(ml.ConvergenceWarning, match="l2svc did not converge"):
        ours.train(y, x, "-c 1000 --max-iter 2")
    with pytest.warns(UserWarning, match="class label 7.0 specified in weight is not found"):
        ours.train(y, x, "-w7 2")


OPTIONS = [
    ("-s 9", "solver = '9' is not known"),
    ("-s abc", "solver = 'abc' is not known"),
    ("-c", "options: -c: its argument is missing"),
    ("-c 1x", "options: -c 1x: C = '1x' is not allowed: give number in (0, inf)"),
    ("-c 0", "options: -c 0: C = 0.0 is not allowed"),
    ("-cost 5", "options: unknown option: -cost"),
    ("-e nan", "options: -e nan: tol = nan is not allowed"),
    ("-v 1", "options: -v 1: cross_validation = 1 is not allowed: give integer in [2, inf)"),
    ("-wcat 2", "options: -wcat 2: give a number as label"),
    ("-w1 -3", "options: -w1 -3: give a number as label and a number in (0, inf)"),
    ("-w", "options: -w: the label is missing"),
    ("train.txt", "options: 'train.txt' is not an option"),
    ("-s msvmav -C", "options: -C: msvmav has no C"),
    ("-s 1 --mu 0.5", "options: --mu is not a parameter of l2svc: it takes --C, "),
    ("-s 1 -p 0.1", "options: -p is not a parameter of l2svc: it takes --C, "),
    ("-s 1 -g 0.5", "gamma = 0.5 is of no use without a kernel"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS)
def test_options_are_strict(options, message):
    with pytest.raises(ValueError) as caught:
        ours.parameter(options)
    assert message in str(caught.value)


def bad_calls():
    y, x = [1, -1], [{1: 1.0}, {1: -1.0}]
    fitted = ours.train(y, x)
    return [
        (lambda: ours.train(y), TypeError, "x is missing"),
        (lambda: ours.train(ours.problem(y, x), "", ""), TypeError, "a third argument"),
        (lambda: ours.train(y, x, 3), TypeError, "options are a int"),
        (lambda: ours.train([1], x), ValueError, "x has 2 rows, y has 1 labels"),
        (lambda: ours.train([1, 1], x), ValueError, "at least 2 classes"),
        (lambda: ours.train(["a", "b"], x), ValueError, "one number a row is needed"),
        (lambda: ours.train(y, [{0: 1.0}, {1: 1.0}]), ValueError, "x[0]: feature number 0: an integer from 1"),
        (lambda: ours.train(y, [{1: 1.0}, {2: 1, 1.5: 1.0}]), ValueError, "x[1]: feature number 1.5"),
        (lambda: ours.train(y, [1, 2]), TypeError, "x[0] is a int"),
        (lambda: ours.train(y, [[ours.feature_node(1, 1.0)] * 2, [1.0]]), ValueError, "x[0]: a feature number comes"),
        (lambda: ours.gen_feature_nodearray(3), TypeError, "a int: a dict or a sequence"),
        (lambda: ours.toPyModel(fitted.classifier.weights), TypeError, "a ndarray is not a model"),
        (lambda: fitted.get_decfun_rho(), ValueError, "only for a one-class SVM"),
        (lambda: ours.train(y, np.ones(2)), ValueError, "two dimensions are needed"),
        (lambda: ours.train(y, np.array([["a"], ["b"]])), ValueError, "numbers are needed"),
        (lambda: ours.predict([1], x, fitted), ValueError, "x has 2 rows, y has 1 labels"),
        (lambda: ours.predict(y, x, None), TypeError, "a NoneType is not a model"),
        (lambda: ours.predict(y, x, fitted, "-b 1"), TypeError, "only supported for logistic regression"),
        (lambda: ours.predict(y, x, fitted, "-z"), ValueError, "options: unknown option: -z"),
        (lambda: ours.save_model("m", None), TypeError, "a NoneType is not a model"),
        (lambda: ours.load_model("missing.model"), FileNotFoundError, "missing.model"),
        (lambda: ours.svm_read_problem("missing.txt"), FileNotFoundError, "missing.txt"),
        (lambda: ours.evaluations([1], [1, 2]), ValueError, "ty has shape (1,), pv (2,)"),
        (lambda: fitted.get_decfun_coef(0), IndexError, "feat_idx = 0: features count from 1"),
        (lambda: fitted.get_decfun_bias(2), IndexError, "label_idx = 2: there are 2 labels"),
        (lambda: ours.csr_find_scale_param(np.ones((2, 2))), TypeError, "a sparse array is needed"),
        (lambda: ours.csr_find_scale_param(sparse.csr_array(np.eye(2)), 1, 0), ValueError, "lower = 1 is not below"),
        (lambda: ours.csr_scale(sparse.csr_array(np.eye(2)), {"coef": np.ones(3), "offset": np.zeros(3)}), ValueError,
         "x has 2 features, scale_param 3"),
        (lambda: setattr(ours.parameter(), "C", -1), ValueError, "C = -1 is not allowed"),
        (lambda: setattr(ours.parameter(), "p", 1), ValueError, "l2svc has no parameter 'epsilon'"),
        (lambda: setattr(ours.parameter("-s 13"), "p", -1), ValueError, "epsilon = -1 is not allowed"),
    ]


@pytest.mark.parametrize("call, error, message", bad_calls())
def test_bad_calls(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert message in str(caught.value)


def test_models_of_several_binary_problems_have_no_weights_of_labels(vehicle):
    y, x = vehicle
    found = ours.train(y, x, "--multiclass ovo")
    with pytest.raises(ValueError, match="binary problems"):
        found.get_decfun_coef(1)
    assert len(ours.predict(y[:1], x[:1], found, "-q")[2][0]) == 6
