"""What a user writes who has scikit-learn, for type checkers alone: see test_types.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from marginlinear.sklearn import MCODMClassifier


def described(model: MCODMClassifier) -> None:
    gap = model.dual_gap_
    print(model.coef_.shape, model.intercept_.sum(), model.classes_.tolist(), model.n_features_in_, model.n_iter_)
    print(model.converged_, model.objective_, "none" if gap is None else f"{gap:.3g}", model.info_.status)
    print(model.C, model.get_params()["mu"], model.model_.coef)


def fitted(X: npt.NDArray[np.float64], y: list[str]) -> npt.NDArray[np.float64]:
    from marginlinear.sklearn import MCODMClassifier

    model = MCODMClassifier(C=4, mu=np.float64(0.4), class_weight={"a": 2.0}, random_state=np.random.RandomState(0),
                            probability=True, max_iter=np.int64(100_000)).fit(X, y)
    described(model)
    again = model.set_params(C=2, warm_start=True).fit(X, y, sample_weight=np.ones(len(y)))
    print(again.predict(X)[:3], again.decision_function(X).max())
    return again.predict_proba(X)


def in_their_places(X: npt.NDArray[np.float64], y: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    from marginlinear.sklearn import SVC, SVR, LinearSVC, LogisticRegression, OneClassSVM

    machine = SVC(C=2, kernel=lambda X, Z: X @ Z.T, class_weight="balanced").fit(X, y)
    print(machine.support_, machine.n_support_.sum(), machine.dual_coef_.shape, machine.fit_status_)
    print(LinearSVC(loss="hinge").fit(X, y).sparsify().predict(X), LogisticRegression().fit(X, y).intercept_.max())
    print(OneClassSVM(nu=0.2, gamma="auto").fit(X).predict(X).sum(), OneClassSVM().fit(X).offset_)
    return SVR(epsilon=0.1).fit(X, X[:, 0]).predict(X)
