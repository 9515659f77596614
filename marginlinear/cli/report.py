"""What the commands print with --json: one object of one schema, which docs/schema.json describes key by key.

Every object has all keys of KEYS; null stands for what a command does not tell, or what there is not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from marginlinear._version import version
from marginlinear.cli.output import tell
from marginlinear.params import Param
from marginlinear.problem import finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from marginlinear._typing import AnyArray, FloatArray
    from marginlinear.cli.output import Results
    from marginlinear.margins import MarginReport
    from marginlinear.model import Model
    from marginlinear.problem import Info
    from marginlinear.residuals import ResidualReport
    from marginlinear.selection import CrossValidation, Search
    from marginlinear.selection.advising import Note
    from marginlinear.selection.metrics import Agreement, LabelAgreement

JSON = Param("json", bool, False, "one JSON object on standard output, in place of the text; its keys are in "
             "docs/files.md")
# Of the keys and their meaning: 2 will be one that a program for 1 cannot read.
SCHEMA = 1
KEYS = ("model", "data", "training", "selection", "scores", "classes", "confusion", "notes", "margins", "residuals",
        "features", "store")
SCORES = ("accuracy", "balanced_accuracy", "macro_precision", "macro_f1", "micro_f1", "auc", "log_loss", "brier",
          "lrap", "mse", "mae", "r2", "squared_correlation")
TRAINING = ("status", "reason", "converged", "algorithm", "n_iter", "n_outer", "objective", "bound", "certificate",
            "residual", "tolerance", "n_support", "seconds", "passes", "bytes_read")


class Judged(Protocol):
    """What a ClassAgreement and a MarginReport have."""

    @property
    def accuracy(self) -> float: ...

    @property
    def precision(self) -> FloatArray: ...

    @property
    def recall(self) -> FloatArray: ...

    @property
    def f1(self) -> FloatArray: ...

    @property
    def auc(self) -> float: ...

    @property
    def log_loss(self) -> float: ...

    @property
    def brier(self) -> float: ...


class Report:
    """What a fit tells: lines of results as they come, or in their place one object of parts; and notes at the end.

    Attributes
    ----------
    results : Results
    as_json : bool
    advised : bool
        Whether notes are wanted.
    parts : dict
        By KEYS.
    notes : list of Note
    """

    def __init__(self, results: Results, as_json: bool, advised: bool) -> None:
        self.results, self.as_json, self.advised = results, as_json, advised
        self.parts: dict[str, Any] = {}
        self.notes: list[Note] = []
        self._told = 0

    def say(self, text: str) -> None:
        """A line of results."""
        if not self.as_json:
            self.results.say(text)

    def tell_notes(self) -> None:
        """Those that are not told yet."""
        if not self.as_json:
            for note in self.notes[self._told:]:
                tell(f"note: {note.text}")
            self._told = len(self.notes)

    def close(self, command: str) -> None:
        """The object of the command, or the notes."""
        if self.as_json:
            self.results.say(text_of(command, **self.parts, notes=[note._asdict() for note in self.notes]))
        self.tell_notes()


def text_of(command: str, **parts: Any) -> str:
    """The object, in a line, with these of KEYS."""
    found = {"schema": SCHEMA, "command": command, "version": version, **dict.fromkeys(KEYS), **parts}
    return json.dumps(finite(found), allow_nan=False)


def model_part(model: Model, path: str | None) -> dict[str, Any]:
    kernel = getattr(model, "kernel", None)
    kind = "regression" if model.classes is None else "multilabel" if model.multilabel else "classifier"
    return {"path": path, "method": model.solver or None, "kind": kind,
            "classes": None if model.classes is None else model.classes.tolist(), "n_features": model.n_features,
            "kernel": kernel and kernel.kind, "n_support": getattr(model, "n_support", None),
            "calibration": model.calibration and model.calibration.kind, "parameters": _plain(model.params)}


def data_part(path: str, *, n_rows: int | None = None, n_features: int | None = None, n_values: int | None = None,
              extra_values: int | None = None, unknown: Mapping[Any, Any] | None = None) -> dict[str, Any]:
    labels = None if unknown is None else [{"label": label, "count": count} for label, count in unknown.items()]
    return {"path": path, "n_rows": n_rows, "n_features": n_features, "n_values": n_values,
            "extra_values": extra_values, "unknown_labels": labels}


def training_part(info: Info) -> dict[str, Any]:
    found = {**info.to_dict(), "converged": info.converged, "tolerance": info.criterion[2]}
    return {name: found[name] for name in TRAINING}


def selection_part(found: Search, metrics: Sequence[str], folds: int, groups: Iterable[str] | None,
                   seed: int) -> dict[str, Any]:
    first, *others = metrics
    points = [{"parameters": _plain({name: entry[name] for name in found.best_params}),
               "scores": {first: entry["score"], **{name: entry[name] for name in others}},
               "fold_scores": {first: entry["fold_scores"], **{name: entry[f"fold_{name}"] for name in others}},
               "n_iter": entry["n_iter"], "seconds": entry["seconds"], "unconverged": entry["unconverged"]}
              for entry in found.table]
    return {"metrics": [*metrics], "folds": folds, "groups": None if groups is None else len(set(groups)), "seed": seed,
            "points": points, "best": {"parameters": _plain(found.best_params), "score": found.best_score}}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name.rstrip("_"): value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
            for name, value in sorted(values.items())}


# ---- scores, classes and confusion


def _scores(**found: Any) -> dict[str, Any]:
    return {**dict.fromkeys(SCORES), **found}


def _classes(labels: Sequence[Any], counts: Any) -> list[dict[str, Any]]:
    columns = zip(labels, *(values.tolist() for values in (counts.precision, counts.recall, counts.f1, counts.support)),
                  strict=True)
    return [dict(zip(("label", "precision", "recall", "f1", "support"), values, strict=True)) for values in columns]


def of_classes(found: Judged, labels: Sequence[Any], confused: Iterable[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """The parts on classes, of a ClassAgreement or a MarginReport and its (label, predicted, count)."""
    from marginlinear.selection.metrics import mean_of

    return {"scores": _scores(accuracy=found.accuracy, balanced_accuracy=mean_of(found.recall),
                              macro_precision=mean_of(found.precision), macro_f1=mean_of(found.f1),
                              # With one label and one prediction a row.
                              micro_f1=found.accuracy, auc=found.auc, log_loss=found.log_loss, brier=found.brier),
            "classes": _classes(labels, found),
            "confusion": [{"label": label, "predicted": predicted, "count": count}
                          for label, predicted, count in confused]}


def of_labels(found: LabelAgreement, labels: Sequence[Any]) -> dict[str, Any]:
    """The parts on rows of several labels."""
    return {"scores": _scores(accuracy=found.accuracy, micro_f1=found.micro_f1,
                              macro_f1=found.macro_f1, lrap=found.lrap), "classes": _classes(labels, found)}


def of_numbers(found: Agreement) -> dict[str, Any]:
    """The parts on a regression."""
    return {"scores": _scores(mse=found.mse, mae=found.mae, r2=found.r2,
                              squared_correlation=found.squared_correlation)}


def of_validation(found: CrossValidation, y: Any, regression: bool) -> dict[str, Any]:
    """The parts on predictions out of fold; the area is the mean over the folds, as scores of several models are not
    of one scale."""
    import numpy as np

    from marginlinear.selection import metrics

    if regression:
        return of_numbers(metrics.Agreement().add(y, found.predictions))
    if hasattr(y, "patterns"):
        return of_labels(metrics.LabelAgreement().add(y.indicator(), found.predictions > 0, found.scores),
                         y.classes.tolist())
    classes, places = np.unique(y, return_inverse=True)
    labels = classes.tolist()
    agreement = metrics.ClassAgreement(len(classes))
    agreement.add(places, np.searchsorted(classes, found.predictions), probabilities=found.probabilities)
    parts = of_classes(agreement, labels, _labelled(agreement.confused, labels))
    folds = [found.fold_of == fold for fold in range(len(found.infos))]
    areas: AnyArray = np.array([metrics.auc(places[rows], None, found.scores[rows]) for rows in folds])
    parts["scores"]["auc"] = metrics.mean_of(areas)
    return parts


def _labelled(confused: Iterable[tuple[int, int, Any]], labels: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    return [(labels[at], labels[there], count) for at, there, count in confused]


def of_agreement(found: Any, labels: Sequence[Any]) -> dict[str, Any]:
    """`of_classes` of a ClassAgreement."""
    return of_classes(found, labels, _labelled(found.confused, labels))


# ---- margins, residuals and features


def of_margins(report: MarginReport) -> dict[str, Any]:
    """The parts of margin-inspect on a classifier."""
    margin, normalised = (None if found is None else _statistics(found)
                          for found in (report.margin, report.normalised_margin))
    return {**of_classes(report, report.classes.tolist(), report.confused),
            "margins": {"unit": report.unit, "margin": margin, "norm": report.norm, "normalised_margin": normalised,
                        "lowest_rows": [row._asdict() for row in report.lowest_rows]},
            "features": [{**top._asdict(), "largest": _asdicts(top.largest), "smallest": _asdicts(top.smallest)}
                         for top in report.top_features]}


def of_residuals(report: ResidualReport, linear: bool) -> dict[str, Any]:
    """The parts of margin-inspect on a regression."""
    features = {"positive": [], "negative": [], "intercept": report.intercept, "largest": _asdicts(report.largest),
                "smallest": _asdicts(report.smallest)}
    return {"scores": _scores(mse=report.mse, mae=report.mae, r2=report.r2,
                              squared_correlation=report.squared_correlation),
            "residuals": {"residual": _statistics(report.residual), "absolute": _statistics(report.absolute),
                          "largest_rows": _asdicts(report.largest_rows)},
            "features": [features] if linear else []}


def _statistics(found: Any) -> dict[str, Any]:
    from marginlinear.margins import statistics_dict

    return statistics_dict(found, "value")


def _asdicts(found: Iterable[Any]) -> list[dict[str, Any]]:
    return [one._asdict() for one in found]
