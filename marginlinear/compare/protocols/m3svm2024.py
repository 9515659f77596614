"""Multi-class support vector machine with maximizing minimum margin (Nie, Hao and Wang, AAAI 2024): Table 1.

Five-fold cross-validation, averages of 10 runs; linear; lambda ten values from 1e-4 to 0.1, p from 1 to 8; rivals as
their authors set them. Table 4 is of networks that are trained together with the loss: it is none of these.
"""

from __future__ import annotations

from marginlinear.compare.design import Design
from marginlinear.compare.protocols.preset import FETCHED, PaperMethod, PaperSet, Protocol

SETS = (
    PaperSet("Cornell", 827, 4143, ("cornell",), origin="WebKB"),
    PaperSet("ISOLET", 1560, 617, ("isolet1560",)),
    PaperSet("HHAR", 10229, 561, origin="UCI repository, smartphone activities"),
    PaperSet("USPS", 1854, 256, ("usps", "usps.t"), origin=f"LIBSVM's page, {FETCHED} usps", take=1854,
             differs="1,854 of the 9,298 digits drawn here; which ones the paper has is not said"),
    PaperSet("ORL", 400, 1024, origin="AT&T Laboratories Cambridge"),
    PaperSet("Dermatology", 366, 34),
    PaperSet("Vehicle", 846, 18, ("vehicle",), origin=f"LIBSVM's page, {FETCHED} vehicle"),
    PaperSet("Glass", 214, 9, ("glass",), origin=f"LIBSVM's page, {FETCHED} glass"),
)

TABLE = Protocol(
    name="m3svm2024",
    paper="F. Nie, Z. Hao and R. Wang, Multi-class Support Vector Machine with Maximizing Minimum Margin, AAAI 2024",
    table="Table 1", published="m3svm2024-table1.csv", sets=SETS,
    methods=(PaperMethod("M3SVM", "m3svm;paper"),
             PaperMethod("OvR", "l1svc;defaults;multiclass=ovr"), PaperMethod("OvO", "l1svc;defaults;multiclass=ovo"),
             PaperMethod("Crammer", "cs;defaults"), PaperMethod("M-SVM", "sklearn:tools.rivals.msvm.MSVM;defaults"),
             PaperMethod("Top-k", "topk;defaults"), PaperMethod("Multi-LR", "softmax;defaults"),
             PaperMethod("SMLR", "smlr;defaults")),
    design=Design(outer_folds=5, repeats=10, folds=5), scale=None,
    readings=(
        "Each of five folds is the test part once, ten times; parameters of M3SVM are chosen by five folds inside the "
        "training part. The paper does not say which of the two its folds are.",
        "Features are as they come, and lambda steps by 0.0111. The authors' program, github.com/zz-haooo/M3SVM, has "
        "those of HHAR, USPS, ORL, Vehicle and Glass with mean 0 and deviation 1 over all rows, and one lambda and p a "
        "set.",
        "Rivals have C = 1 and are not tuned: the paper has authors' defaults but where a grid was needed, and does "
        "not say where; top-k has k = 5, or one less than there are classes.",
        "All of them have a constant feature of 1."),
    common={"bias": 1.0})

PROTOCOLS = (TABLE,)
