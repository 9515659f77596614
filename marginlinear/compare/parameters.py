"""The parameters of a comparison, declared once, for Python and for margin-compare. No NumPy here."""

from __future__ import annotations

from marginlinear import params
from marginlinear.params import Param

SPLITS = Param("splits", int, 30, "random splits of each set", "[1, 10000]")
TRAIN_SIZE = Param("train_size", float, 0.5, "part of the rows that a split trains on; from 1 on so many rows",
                   "(0, inf)")
TEST_SIZE = Param("test_size", float, None, "part of the rows that it tests on; from 1 on so many rows (default: all "
                  "others)", "(0, inf)")
OUTER_FOLDS = Param("outer_folds", int, None, "in place of random splits: each of so many folds is the test part once",
                    "[2, 1000]", brief="cross-validation in place of splits")
REPEATS = Param("repeats", int, 1, "how many times the rows are cut into outer folds", "[1, 1000]")
LABEL_NOISE = Param("label_noise", float, 0.0, "part of each training part's rows that get another class's label, at "
                    "random; test rows keep theirs", "[0, 1)")
RARE = Param("rare", float, None, "part of each training part's rows that may be of its rarest class: others of it, at "
             "random, are left out; test rows stay (default: all)", "(0, 1)")
FOLDS = params.FOLDS._replace(help="folds inside a training part, by which parameters are chosen")
SEED = params.SEED._replace(help="seed of splits, folds and fits")
# How sets are split, and parameters chosen.
DESIGN = (SPLITS, TRAIN_SIZE, TEST_SIZE, OUTER_FOLDS, REPEATS, FOLDS, SEED, LABEL_NOISE, RARE)
LEVEL = Param("level", float, 0.05, "how often a test may find a difference that is not there", "(0, 1)")
ROPE = Param("rope", float, 0.01, "differences of at most this size are no practical ones: of a score as it is, of an "
             "error as a part of the first method's", "[0, inf)")
# With a bias, as other programs' methods have one by default.
BIAS = params.BIAS._replace(default=1.0)
THREADS = params.THREADS._replace(help="trials at once (default: all cores); the result does not depend on it",
                                  brief="")
