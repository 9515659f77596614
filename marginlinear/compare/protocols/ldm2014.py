"""Large margin distribution machine (Zhang and Zhou, KDD 2014): Tables 2, 3 and 4.

Half of the rows for training, 30 times (10 on large sets); features to [0, 1]; no bias; C in {10, 50, 100}, lambda1 and
lambda2 in 2^-8, ..., 2^-2, the kernel's width around the mean distance of the rows; 5-fold cross-validation on the
training part; paired t test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marginlinear.compare.design import Design
from marginlinear.compare.protocols.preset import FETCHED, PaperMethod, PaperSet, Protocol
from marginlinear.compare.protocols.widths import OfWidths

if TYPE_CHECKING:
    from marginlinear.compare.contestants import Contestant

PAPER = "T. Zhang and Z.-H. Zhou, Large Margin Distribution Machine, KDD 2014"
COSTS = "C=10,50,100"
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
NO_MDO = ("the loss of Garg and Roth (2003), and the values of its constants that they advise, are not in any text at "
          "hand")

REGULAR = (
    PaperSet("promoters", 106, 57, ("promoters-int",)),
    PaperSet("planning-relax", 182, 12, ("planning-relax",)),
    PaperSet("colic", 188, 13, ("colic",), differs="368 horses, nominal attributes one-hot; the paper has 188 rows"),
    PaperSet("parkinsons", 195, 22),
    PaperSet("colic.ORIG", 205, 17),
    PaperSet("sonar", 208, 60, ("sonar",)),
    PaperSet("vote", 232, 16, ("vote",), differs="435 records, missing votes 0; the paper has 232 rows"),
    PaperSet("house", 232, 16, ("house",)),
    PaperSet("heart", 270, 9, ("heart",), differs="13 attributes as they are; the paper has 9"),
    PaperSet("breast-cancer", 277, 9, ("breast-cancer",)),
    PaperSet("haberman", 306, 14),
    PaperSet("vehicle", 435, 16, ("vehicle2",), differs="18 attributes, saab against bus; the paper has 16"),
    PaperSet("clean1", 476, 166),
    PaperSet("wdbc", 569, 14, ("wdbc",), differs="all 30 attributes; the paper has 14"),
    PaperSet("isolet", 600, 51),
    PaperSet("credit-a", 653, 15),
    PaperSet("austra", 690, 15),
    PaperSet("australian", 690, 42),
    PaperSet("fourclass", 862, 2, ("fourclass",), origin=f"LIBSVM's page, {FETCHED}"),
    PaperSet("german", 1000, 59, ("german",), differs="61 columns of the one-hot code; the paper has 59"),
)
LARGE = (
    PaperSet("farm-ads", 4143, 54877, ("farm-ads",)),
    PaperSet("news20", 19996, 1355191, ("news20bin",), origin=f"LIBSVM's page, {FETCHED} news20.binary",
             differs="18,846 messages of the bydate version, made in the manner of the set"),
    PaperSet("adult-a", 32561, 123, ("a9a",), origin=f"LIBSVM's page, {FETCHED} a9a"),
    PaperSet("w8a", 49749, 300, origin="LIBSVM's page, w8a"),
    PaperSet("cod-rna", 59535, 8, origin="LIBSVM's page, cod-rna"),
    PaperSet("real-sim", 72309, 20958, origin="LIBSVM's page, real-sim"),
    PaperSet("ijcnn1", 141691, 22, ("ijcnn1", "ijcnn1.t"), origin=f"LIBSVM's page, {FETCHED} ijcnn1"),
    PaperSet("skin", 245057, 3, origin="LIBSVM's page, skin_nonskin"),
    PaperSet("covtype", 581012, 54, origin="LIBSVM's page, covtype.binary"),
    PaperSet("rcv1", 697641, 47236, origin="LIBSVM's page, rcv1.binary"),
    PaperSet("url", 2396130, 3231961, origin="LIBSVM's page, url"),
    PaperSet("kdd2010", 8407752, 20216830, origin="LIBSVM's page, kdd2010 (algebra)"),
)
READINGS = (
    "Rows are split class by class; the paper does not say whether.",
    "Ranges of features are those of the training rows.",
    "The SVM has the hinge; the paper names no program.",
)
# The cost of KM-OMD: lam = 1/(1 + C).
KM_OMD = "sklearn:tools.rivals.kmomd.KMOMD;lam=0.0909090909090909,0.0196078431372549,0.0099009900990099"
OF_KM_OMD = "KM-OMD's C is read as lam = 1/(1 + C), the cost of a hull's distance beside that of one row."

LINEAR = Protocol(
    name="ldm2014-linear", paper=PAPER, table="Table 2, linear kernel", published="ldm2014-table2.csv", sets=REGULAR,
    methods=(PaperMethod("LDM", "ldm;paper"), PaperMethod("SVM", f"l1svc;{COSTS}"),
             PaperMethod("MDO", why=NO_MDO), PaperMethod("MAMC", "mamc;defaults"), PaperMethod("KM-OMD", KM_OMD)),
    design=Design(splits=30, train_size=0.5, folds=5), scale="range", readings=(*READINGS, OF_KM_OMD),
    marks="SVM")


def of_widths(contestant: Contestant) -> Contestant:
    return OfWidths(contestant, WIDTHS)


RBF = Protocol(
    name="ldm2014-rbf", paper=PAPER, table="Table 3, RBF kernel", published="ldm2014-table3.csv", sets=REGULAR,
    methods=(PaperMethod("LDM", "ldm;kernel=rbf;paper"),
             PaperMethod("SVM", f"l1svc;kernel=rbf;{COSTS};defaults"),
             PaperMethod("MDO", why="linear only, in the paper too"),
             PaperMethod("MAMC", "mamc;kernel=rbf;defaults"), PaperMethod("KM-OMD", f"{KM_OMD};kernel=rbf")),
    design=Design(splits=30, train_size=0.5, folds=5), scale="range",
    readings=(*READINGS, OF_KM_OMD, "Widths are 1/4, 1/2, 1, 2 and 4 times the mean distance of the training rows, and "
              "enter as exp(-||x - z||^2/(2 width^2))."),
    vary=of_widths, marks="SVM")

LARGE_SETS = Protocol(
    name="ldm2014-large", paper=PAPER, table="Table 4, linear kernel, large sets", published="ldm2014-table4.csv",
    sets=LARGE,
    methods=(PaperMethod("LDM", "ldm-asgd;paper"), PaperMethod("SVM", f"l1svc;{COSTS}"),
             PaperMethod("MDO", why=NO_MDO), PaperMethod("MAMC", "mamc;defaults"),
             PaperMethod("KM-OMD", why="no result within 48 hours in the paper")),
    design=Design(splits=10, train_size=0.5, folds=5), scale="range",
    readings=(*READINGS, "LDM is the paper's Algorithm 2, five epochs of averaged stochastic gradient descent, which "
              "its Section 3.2 gives for large sets. It stops before it is certified, and counts all the same."),
    marks="SVM")

PROTOCOLS = (LINEAR, RBF, LARGE_SETS)
