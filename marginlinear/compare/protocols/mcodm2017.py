"""Multi-class optimal margin distribution machine (Zhang and Zhou, ICML 2017): Table 2.

80 % of the rows for training, 10 times; features to [0, 1]; linear, no bias; lambda, and C of the rivals, in 2^0, 2^2,
..., 2^20, mu and theta in {0.2, 0.4, 0.6, 0.8}; 5-fold cross-validation on the training part; paired t test.
"""

from __future__ import annotations

from marginlinear.compare.design import Design
from marginlinear.compare.protocols.preset import FETCHED, PaperMethod, PaperSet, Protocol

LIBSVM = f"LIBSVM's page, {FETCHED}"
COSTS = "C=log2:0:2:20"

SETS = (
    PaperSet("iris", 150, 4, ("sklearn:iris",)),
    PaperSet("wine", 178, 13, ("sklearn:wine",)),
    PaperSet("glass", 214, 9, ("glass",), origin=LIBSVM),
    PaperSet("svmguide2", 391, 20, ("svmguide2",), origin=LIBSVM),
    PaperSet("svmguide4", 612, 10, origin="LIBSVM's page, svmguide4"),
    PaperSet("vehicle", 846, 18, ("vehicle",), origin=LIBSVM),
    PaperSet("vowel", 990, 10, origin=LIBSVM),
    PaperSet("segment", 2310, 19, ("segment",), origin=LIBSVM),
    PaperSet("dna", 3186, 180, ("dna", "dna.t"), origin=LIBSVM),
    PaperSet("satimage", 6435, 36, ("satimage", "satimage.t"), origin=LIBSVM),
    PaperSet("usps", 9298, 256, ("usps", "usps.t"), origin=LIBSVM,
             differs="pixels of the source; those of LIBSVM's page are smoothed"),
    PaperSet("sector", 9619, 55197, ("sector", "sector.t"), origin=LIBSVM),
    PaperSet("pendigits", 10992, 16, origin=LIBSVM),
    PaperSet("news20", 19928, 62061, ("news20",), origin=LIBSVM, differs="the training part's 15,935 rows"),
    PaperSet("letter", 20000, 16, ("letter", "letter.t"), origin=LIBSVM),
    PaperSet("protein", 24387, 357, ("protein-val",), origin=LIBSVM,
             differs="the 2,871 rows of the validation part"),
    PaperSet("shuttle", 58000, 9, ("shuttle", "shuttle.t"), origin=LIBSVM),
    PaperSet("connect-4", 67557, 126, ("connect-4",), origin=LIBSVM),
    PaperSet("mnist", 70000, 780, ("mnist", "mnist.t"), origin=LIBSVM,
             differs="32 of the 256 grey levels of the training images are one level lower"),
    PaperSet("aloi", 108000, 128, origin=LIBSVM),
    PaperSet("rcv1", 534135, 47236, origin=LIBSVM),
    PaperSet("covtype", 581012, 54, origin=LIBSVM),
)

TABLE = Protocol(
    name="mcodm2017", paper="T. Zhang and Z.-H. Zhou, Multi-Class Optimal Margin Distribution Machine, ICML 2017",
    table="Table 2", published="mcodm2017-table2.csv", sets=SETS,
    methods=(PaperMethod("mcODM", "mcodm;paper"),
             PaperMethod("mcSVM", f"cs;{COSTS}"), PaperMethod("ovaSVM", f"l2svc;{COSTS};multiclass=ovr"),
             PaperMethod("ovoSVM", f"l2svc;{COSTS};multiclass=ovo"),
             PaperMethod("ecocSVM", f"l2svc;{COSTS};multiclass=ecoc")),
    design=Design(splits=10, train_size=0.8, folds=5), scale="range",
    readings=(
        "Rows are split class by class, parameters chosen anew for each repetition, and ranges of features are of "
        "the training rows; the paper does not say.",
        "mcSVM is Crammer and Singer's, the joint machine of LIBLINEAR, which the paper names; binary ones have the "
        "squared hinge, LIBLINEAR's default.",
        "ecocSVM has exhaustive codes up to 7 classes and random ones above, where the paper has exhaustive ones too, "
        "or no result.",
        "mcODM is what the convex-concave procedure finds, not the fixed point of the paper's Algorithm 1."),
    marks="rivals")

CLASSES = TABLE._replace(
    name="mcodm2017-classes", table="Figures 1 and 2: segment with 2 to 7 classes, whose curves are not in the text",
    published="", marks="", sets=tuple(
        PaperSet(f"segment-{k}", 330 * k, 19, ("segment",), origin=LIBSVM, classes=k) for k in range(2, 8)),
    readings=(*TABLE.readings, "Classes are added in the order of their labels; the paper does not say in which."))

PROTOCOLS = (TABLE, CLASSES)
