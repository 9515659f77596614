"""lp-norm multi-class support vector machine (Lei, Dogan, Binder and Kloft, NIPS 2015): Table 2.

Given numbers of training and test rows, 10 repetitions; C in 2^-12, ..., 2^12 and p in 1.1, 1.2, ..., 2 by 5 folds of
the training part; no bias; Wilcoxon's signed ranks over the sets.
"""

from __future__ import annotations

from marginlinear.compare.design import Design
from marginlinear.compare.protocols.preset import FETCHED, PaperMethod, PaperSet, Protocol

LIBSVM = f"LIBSVM's page, {FETCHED}"
COSTS = "C=log2:-12:1:12"

SETS = (
    PaperSet("Sector", 9619, 55197, ("sector", "sector.t"), origin=LIBSVM),
    PaperSet("News 20", 19928, 62060, ("news20",), origin=LIBSVM,
             differs="the training part's 15,935 rows, of which two thirds are trained on"),
    PaperSet("Rcv1", 534135, 47236, origin=LIBSVM),
    PaperSet("Birds 15", 11788, 4096, origin="Caltech-UCSD Birds, features of a network"),
    PaperSet("Birds 50", 11788, 4096, origin="Caltech-UCSD Birds, features of a network"),
    PaperSet("Caltech 256", 29780, 4096, origin="Caltech 256, features of a network"),
)

TABLE = Protocol(
    name="lpmcsvm2015",
    paper="Y. Lei, U. Dogan, A. Binder and M. Kloft, Multi-class SVMs: From Tighter Data-Dependent Generalization "
          "Bounds to Novel Algorithms, NIPS 2015",
    table="Table 2", published="lpmcsvm2015-table2.csv", sets=SETS,
    methods=(PaperMethod("lp-norm MC-SVM", "lpmcsvm;paper"),
             PaperMethod("Crammer & Singer", f"cs;{COSTS}")),
    design=Design(splits=10, train_size=2 / 3, folds=5), scale=None,
    readings=(
        "Repetitions are random splits, class by class, with two thirds of the rows for training, Sector's share; the "
        "paper does not say what changes from one to the next.",
        "Features are as they come."))

PROTOCOLS = (TABLE,)
