"""On the optimization of margin distribution (Qian, Ai, Zhang and Gao, IJCAI 2022): Tables 1 and 2.

The text at hand has lost its numbers: repetitions, folds, ranges, grids. What is read here is in the
`readings`; the share of test rows, 20 %, follows from the printed accuracies.
"""

from __future__ import annotations

from marginlinear import params as P
from marginlinear.compare.design import Design
from marginlinear.compare.grids import GAMMA
from marginlinear.compare.protocols.preset import FETCHED, PaperMethod, PaperSet, Protocol

PAPER = "M.-Z. Qian, Z. Ai, T. Zhang and W. Gao, On the Optimization of Margin Distribution, IJCAI 2022"
OPENML = "OpenML or UCI"
COSTS = f"C={P.C.grid}"
WEIGHTS = f"alpha={P.ALPHA.grid};beta={P.BETA.grid}"
BANDS = "mu=0.2:0.2:0.8;theta=0.2:0.2:0.8"
# Regression on the signs, whose residual is |1 - g|, at eps = 0.1: with the loss (|1 - g| - eps)_+^2 the optimal margin
# distribution machine of theta = eps and mu = 1; with (|1 - g| - eps)_+, in units of 1 - eps, the relative margin
# machine whose bound is (1 + eps)/(1 - eps).
SQUARED_SVR, SVR = "odm;mu=1;theta=0.1", "rmm;margin_bound=1.2222222222222223"
FMM = "sklearn:tools.rivals.fmm.FMM;rate=0.1,1;steps=10,100,1000"

REGULAR = (
    PaperSet("advertise", 3279, 1558, origin=OPENML), PaperSet("australian", 690, 14, origin=OPENML),
    PaperSet("bibtex", 7395, 1836, origin=OPENML), PaperSet("biodeg", 1055, 41, origin=OPENML),
    PaperSet("breastw", 683, 9, ("breastw",), origin=OPENML,
             differs="699 rows, missing values replaced by the mean; the paper has the 683 complete ones"),
    PaperSet("diabetes", 768, 8, origin=OPENML), PaperSet("emotions", 593, 72, origin=OPENML),
    PaperSet("german", 1000, 24, ("german-numer",), origin=f"LIBSVM's page, {FETCHED} german.numer"),
    PaperSet("halloffame", 1320, 22, origin=OPENML), PaperSet("hill-valley", 1212, 100, origin=OPENML),
    PaperSet("kc1", 2109, 21, origin=OPENML), PaperSet("parkinsons", 208, 60, origin=OPENML),
    PaperSet("pbcseq", 1113, 21, ("pbcseq",), origin=OPENML,
             differs="1,945 rows of 18 columns, missing values replaced; the paper has 1,113 rows of 21"),
    PaperSet("sleepdata", 1024, 2, origin=OPENML), PaperSet("students", 1000, 18, origin=OPENML),
    PaperSet("titanic", 2201, 3, ("titanic",), origin=OPENML), PaperSet("tokyo1", 959, 44, origin=OPENML),
    PaperSet("vehicle", 846, 18, origin=f"{OPENML}: the paper does not say which classes make two"),
    PaperSet("vertebra", 310, 6, ("vertebra",), origin=OPENML), PaperSet("wdbc", 569, 30, ("wdbc",), origin=OPENML),
)
LARGE = (
    PaperSet("a9a", 32561, 123, ("a9a",), origin=f"LIBSVM's page, {FETCHED} a9a"),
    PaperSet("acoustic", 78823, 50, origin="LIBSVM's page, SensIT Vehicle (acoustic)"),
    PaperSet("bank", 45211, 51, ("bank",), origin=OPENML,
             differs="bank-additional-full, 41,188 rows of 62 columns; the paper has 45,211 of 51"),
    PaperSet("eurgbp", 43825, 10, origin=OPENML),
    PaperSet("jm1", 10880, 21, ("jm1",), origin=OPENML, differs="10,885 rows, missing values replaced by the mean"),
    PaperSet("magic", 19020, 10, ("magic",)), PaperSet("nomao", 34465, 118, origin=OPENML),
    PaperSet("phishing", 11055, 68, ("phishing",), origin=f"LIBSVM's page, {FETCHED} phishing"),
    PaperSet("pol", 15000, 44, ("pol",), origin=OPENML, differs="33 columns, all others of the source being 0"),
    PaperSet("run-walk", 88588, 6, origin=OPENML),
)
READINGS = (
    "20 % of the rows are for tests, as the printed accuracies tell; 10 repetitions and 5 folds, since the numbers are "
    "lost. The paper's linear figures seem to share one test part: their deviations then lack what these differ by.",
    "Features go to [0, 1] by the training rows; the interval is lost.",
    "The grids are those of margin-compare, as the paper's are lost; mu and theta of ODM are those of mcODM's paper.",
    "SVR is eps-insensitive regression on the signs, eps = 0.1, LIBLINEAR's and LIBSVM's default; the linear one has "
    "the squared loss, that of LIBLINEAR's first solver of regressions.",
)


def methods(kernel: str, svr: str, fmm: str) -> tuple[PaperMethod, ...]:
    return (PaperMethod("MSVMAv", f"msvmav;{kernel}{WEIGHTS}"), PaperMethod("SVM", f"l1svc;{kernel}{COSTS}"),
            PaperMethod("SVR", f"{svr};{kernel}{COSTS}"), PaperMethod("LSSVM", f"lssvm;{kernel}{COSTS}"),
            PaperMethod("ODM", f"odm;{kernel}{COSTS};{BANDS}"), PaperMethod("MAMC", f"mamc;{kernel}C=1"),
            PaperMethod("FMM", fmm))


LINEAR = Protocol(
    name="msvmav2022-linear", paper=PAPER, table="Table 1, linear", published="msvmav2022-table1.csv",
    sets=(*REGULAR, *LARGE),
    methods=methods("", SQUARED_SVR, FMM),
    design=Design(splits=10, train_size=0.8, folds=5), scale="range",
    readings=(*READINGS, "A constant 1 is appended to each row."), common={P.BIAS.name: 1.0},
    one_test_part=True)

RBF = Protocol(
    name="msvmav2022-rbf", paper=PAPER, table="Table 2, Gaussian kernel", published="msvmav2022-table2.csv",
    sets=REGULAR,
    methods=methods("kernel=rbf;", SVR, f"{FMM};kernel=rbf;gamma={GAMMA[0]};fit_intercept=False"),
    design=Design(splits=10, train_size=0.8, folds=5), scale="range", readings=READINGS,
    one_test_part=True)

PROTOCOLS = (LINEAR, RBF)
