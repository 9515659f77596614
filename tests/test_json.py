"""--json of margin-train, margin-predict and margin-inspect: objects of docs/schema.json, and what is true in them."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import marginlinear as ml
from marginlinear.cli import inspect, predict, report, train
from marginlinear.selection import metrics
from marginlinear.status import CAPS, STATUSES

SCHEMA = json.loads((Path(__file__).parent.parent / "docs" / "schema.json").read_text("utf-8"))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float),
         "integer": int}


def resolved(part):
    return {**SCHEMA["$defs"][part["$ref"].rpartition("/")[2]], **part} if "$ref" in part else part


def check(value, part, place=""):
    """The few words of JSON Schema that ours is written in; a key that it does not name is an error here."""
    part = resolved(part)
    if "const" in part or "enum" in part:
        assert value in part.get("enum", [part.get("const")]), place
    kinds = part.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    assert not kinds or any(isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
                            for kind in kinds), (place, value)
    if isinstance(value, dict) and "properties" in part:
        assert {*part["required"]} == {*part["properties"]} == {*value}, place
        for name, own in part["properties"].items():
            check(value[name], own, f"{place}.{name}")
    elif isinstance(value, dict):
        for name, item in value.items():
            check(item, part.get("additionalProperties", {}), f"{place}.{name}")
    elif isinstance(value, list):
        for item in value:
            check(item, part.get("items", {}), f"{place}[]")


def described(part):
    """Every key below a part of the schema says what it is."""
    for name, own in resolved(part).get("properties", {}).items():
        assert resolved(own).get("description"), name
        described(own)
        described(resolved(own).get("items", {}))


def test_every_key_is_described():
    for part in (SCHEMA, *SCHEMA["$defs"].values()):
        described(part)
    training = SCHEMA["properties"]["training"]["properties"]
    assert tuple(training["status"]["enum"]) == STATUSES and {*training["reason"]["enum"]} == {*CAPS, None}
    assert {*report.KEYS} < {*SCHEMA["properties"]} and SCHEMA["properties"]["schema"]["const"] == report.SCHEMA


def test_the_schema_is_one():
    validators = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install jsonschema").validators
    validators.Draft202012Validator.check_schema(SCHEMA)


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(command, words) is the object that it prints: alone on standard output, with nothing on standard error."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([3, 5, 9], [40, 30, 20]))
    X = rng.standard_normal((90, 4)) + 1.5 * np.eye(3, 4)[np.searchsorted([3, 5, 9], y)]
    ml.dump_libsvm(X, y, "d")
    ml.dump_libsvm(X[y < 9], y[y < 9], "two")
    ml.dump_libsvm(X, X @ [1, 2, 3, 4] + rng.standard_normal(90), "numbers")
    Path("sets").write_text("".join(f"{'1,2' if a > 0 else '2' if b > 0 else ' '} 1:{a} 2:{b}\n" for a, b in X[:, :2]))
    Path("groups").write_text("".join(f"g{i // 5}\n" for i in range(90)))

    def run(command, words, err=""):
        capfd.readouterr()
        assert command.main(["--json", *words.split()]) == 0
        told = capfd.readouterr()
        assert told.err == err and told.out.count("\n") == 1
        found = json.loads(told.out, parse_constant=pytest.fail)
        check(found, SCHEMA)
        if importlib.util.find_spec("jsonschema"):
            importlib.import_module("jsonschema").validate(found, SCHEMA)
        assert found["command"] == command.PROGRAM
        return found

    return run


def test_a_fit_and_its_predictions(run, monkeypatch):
    fitted = run(train, "-s logistic --multiclass ovr d m")
    model = ml.load_model("m")
    assert fitted["training"]["objective"] == pytest.approx(model.info.objective) and fitted["scores"] is None
    assert fitted["model"]["classes"] == [3, 5, 9] and fitted["data"]["n_rows"] == 90
    X, y = ml.load_libsvm("d")
    found = run(predict, "d m")
    predicted, p = model.predict(X), model.predict_proba(X)
    assert found["scores"]["accuracy"] == np.mean(predicted == y) == found["scores"]["micro_f1"]
    places = np.searchsorted(model.classes, y)
    assert found["scores"]["log_loss"] == pytest.approx(-np.mean(np.log(p[np.arange(90), places])))
    assert found["scores"]["brier"] == pytest.approx(np.mean(((p - np.eye(3)[places])**2).sum(axis=1)))
    assert found["scores"]["auc"] == pytest.approx(metrics.auc(places, None, model.decision_function(X)))
    for row in found["classes"]:
        label = row["label"]
        assert row["recall"] == pytest.approx(np.mean(predicted[y == label] == label))
        assert row["precision"] == pytest.approx(np.mean(y[predicted == label] == label))
        assert row["support"] == sum(y == label)
    pairs = {(row["label"], row["predicted"]): row["count"] for row in found["confusion"]}
    assert pairs == {(a, b): np.sum((y == a) & (predicted == b)) for a in model.classes for b in model.classes
                     if np.any((y == a) & (predicted == b))}
    shown = run(inspect, "m d")
    for name in ("scores", "classes", "confusion", "data", "model"):
        assert shown[name] == pytest.approx(found[name]) if name == "scores" else shown[name] == found[name]
    # Block by block it is the same, and predictions are written where there is a file for them.
    monkeypatch.setattr(predict, "BLOCK", 21)
    again = run(predict, "d m out")
    assert again["scores"] == pytest.approx(found["scores"]) and again["confusion"] == found["confusion"]
    assert Path("out").read_text().split() == [str(label) for label in predicted]


def test_labels_that_the_model_does_not_know_are_wrong_and_out_of_the_area(run):
    run(train, "-s mcodm two m")
    found = run(predict, "d m")
    assert found["data"]["unknown_labels"] == [{"label": 9, "count": 20}]
    known = run(predict, "two m")
    assert found["scores"]["accuracy"] == pytest.approx(known["scores"]["accuracy"] * 70 / 90)
    assert found["scores"]["auc"] == pytest.approx(known["scores"]["auc"]) and found["scores"]["log_loss"] is None
    assert found["confusion"] == known["confusion"]


def test_cross_validation_has_the_scores_of_the_rows_held_out(run):
    found = run(train, "-s logistic -v 3 --groups groups --metric auc,log_loss d")
    checked = ml.cross_validate(*ml.load_libsvm("d"), solver="logistic", folds=3,
                                groups=Path("groups").read_text().split(), metric=["auc", "log_loss"])
    point, = found["selection"]["points"]
    assert point["scores"] == {"auc": checked.score, "log_loss": checked.metrics["log_loss"].score}
    assert point["fold_scores"]["log_loss"] == checked.metrics["log_loss"].fold_scores.tolist()
    assert found["scores"]["auc"] == pytest.approx(checked.score)
    assert found["scores"]["log_loss"] == pytest.approx(checked.metrics["log_loss"].score)
    y = ml.load_libsvm("d")[1]
    assert found["scores"]["accuracy"] == np.mean(checked.predictions == y)
    assert (found["model"], found["selection"]["groups"], found["selection"]["folds"]) == (None, 18, 3)


def test_a_search(run):
    found = run(train, "-s mcodm -C --grid C=0.1,1,mu=0.2,0.8 --refit --metric accuracy,auc d m")
    best = found["selection"]["best"]
    assert best["score"] == max(point["scores"]["accuracy"] for point in found["selection"]["points"])
    assert best["parameters"].items() <= found["model"]["parameters"].items()
    assert len(found["selection"]["points"]) == 4 and found["training"]["converged"]


@pytest.mark.parametrize("method, data, scores", [
    ("l2svr", "numbers", {"mse", "mae", "r2", "squared_correlation"}),
    ("odm", "sets", {"accuracy", "micro_f1", "macro_f1", "lrap"}),
])
def test_numbers_and_sets_of_labels(method, data, scores, run):
    run(train, f"-s {method} {data} m")
    told = [run(predict, f"{data} m"), run(train, f"-s {method} -v 3 {data}")]
    if method == "l2svr":
        told.append(run(inspect, f"m {data}"))
        assert told[2]["scores"] == pytest.approx(told[0]["scores"])
    for found in told:
        assert {name for name, value in found["scores"].items() if value is not None} == scores
        assert (found["classes"] is None) == (method == "l2svr") and found["confusion"] is None


def test_stores_and_kernels(run):
    run(train, "-s l1svc --kernel rbf two k")
    found = run(inspect, "k two")
    assert found["model"]["kernel"] == "rbf" and found["features"] == []
    assert found["model"]["n_support"] == ml.load_model("k").n_support
    run(train, "-s l1svc --store s two m")
    about = run(inspect, "s/two.store")
    assert about["data"]["n_rows"] == 70 and about["store"]["chunks"] == 1


def test_no_place_for_both(run, capfd):
    for words in (["--json", "d", "-"],):
        assert train.main(words) == 2
        assert "--json writes to standard output: name a model_file" in capfd.readouterr().err


def test_weights_are_rows_given_twice(run):
    """The area, too, of rows with ties."""
    rng = np.random.default_rng(1)
    y, scores, weights = rng.integers(0, 2, 40), rng.integers(0, 5, 40) * 1.0, rng.integers(0, 4, 40)
    twice = np.repeat(np.arange(40), weights)
    assert metrics.auc(y, None, scores, weights * 1.0) == pytest.approx(metrics.auc(y[twice], None, scores[twice]))
    once = metrics.ClassAgreement(2, keep_scores=True)
    for part in np.array_split(np.arange(40), 3):
        once.add(y[part], y[part] ^ (scores[part] > 2), weights=weights[part] * 1.0, scores=scores[part])
    again = metrics.ClassAgreement(2, keep_scores=True).add(y[twice], (y ^ (scores > 2))[twice], scores=scores[twice])
    assert once.confused == again.confused and once.auc == pytest.approx(again.auc)
    assert once.f1.tolist() == again.f1.tolist() and once.accuracy == again.accuracy
