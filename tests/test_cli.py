"""The commands: one table of command lines, then what a table cannot say."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import marginlinear
from marginlinear import params, registry
from marginlinear.cli import data as cli_data
from marginlinear.cli import predict, train
from marginlinear.libsvm import read_libsvm
from marginlinear.modelfile import load_model

ROOT = str(Path(marginlinear.__file__).parents[1])
COMMANDS = {"train": train.main, "predict": predict.main}


def rows(labels, seed=0, noise=1.0):
    """A LIBSVM file with a feature a class, more or less."""
    rng = np.random.default_rng(seed)
    lines = []
    for label in labels:
        values = rng.standard_normal(4) * noise
        values[sorted(set(labels)).index(label)] += 2
        lines.append(f"{label} " + " ".join(f"{j + 1}:{v:.6g}" for j, v in enumerate(values)))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder of files and models `m` of `d`, `m2` of `d2` (two classes), `mt` of `words`.

    Kernel models are `k` and `k2`, and `o` has a column for each pair of classes.
    """
    made = tmp_path_factory.mktemp("prepared")
    (made / "d").write_text(rows([1, 2, 3] * 20))
    (made / "d2").write_text(rows([-1, 1] * 20))
    (made / "words").write_text(rows(["ham", "spam", "\u00e9"] * 10), "utf-8")
    (made / "fractions").write_text(rows([0.5, 1.5, 3] * 10))
    (made / "zero").write_text("1 0:1 2:1\n2 1:1\n1 0:2\n")
    (made / "one").write_text("1 1:1\n1 2:1\n")
    (made / "bad").write_text("1 1:1\n2 1:x\n")
    (made / "bad2").write_text("1 1:1\n2 1:2\n1 1:3\n")
    (made / "wide").write_text("1 1:1 9:1 10:1\n2 2:1 9:5\n")
    (made / "w").write_text("1\n" * 60)
    (made / "wbad").write_text("1\n  -2\n")
    (made / "wfew").write_text("1\n1\n")
    for options, data, model in (("", "d", "m"), ("", "d2", "m2"), ("-t 2", "d", "k"), ("-t 2 -s ldm", "d2", "k2"),
                                 ("-s ldm --multiclass ovo", "d", "o"), ("--text-labels", "words", "mt")):
        assert train.main(["-q", *options.split(), str(made / data), str(made / model)]) == 0
    return made


@pytest.fixture
def folder(prepared, tmp_path, monkeypatch):
    """A current folder with what is prepared."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    return tmp_path


RESULT = (r"optimization finished, #iter = \d+\nObjective value = \S+\nnSV = \d+\n"
          r"certificate = \S+ \(converged; tolerance \S+\)\n")
KERNEL_RESULT = RESULT.replace("certificate", r"Total nSV = \d+\ncertificate")
HINT = r"\nTry 'margin-{0} --help'\.\n"
ACCURACY = r"Accuracy = \S+% \(\d+/60\)\n"

# command line, exit status, stdout, stderr: patterns for the whole text
GOLDEN = [
    ("train d", 0, RESULT, ""),
    ("train d out", 0, RESULT, ""),
    ("train -s mcodm -c 16 -e 0.01 -B 1 d out", 0, RESULT, ""),
    ("train -s 4 d out", 0, RESULT, ""),
    ("train --solver cs --C 2 --tol=0.01 --bias=-1 d", 0, RESULT, ""),
    ("train -B -1 d", 0, RESULT, ""),
    ("train d out -q", 0, "", ""),
    ("train -q -- d out", 0, "", ""),
    ("train -c 5 -c 1 -q d", 0, "", ""),
    ("train --lambda 60 --mu 0.5 --theta 0.1 --outer ccp -q d", 0, "", ""),
    ("train --outer paper --max-outer 1 -e 1e-9 -q d", 0, "", r"WARNING: .*outer iterations.* more --max-outer\n"),
    ("train -w1 2 -w2 0.5 -q d", 0, "", ""),
    ("train -w-1 2 -q d2", 0, "", ""),
    ("train -w3.0 2 -w0.5 2 -q fractions", 0, "", ""),
    ("train --text-labels -wspam 2 -q words", 0, "", ""),
    ("train -w9 2 -q d", 0, "", "WARNING: class label 9 specified in weight is not found\n"),
    ("train --weights w -q d", 0, "", ""),
    ("train --zero-based -q zero", 0, "", ""),
    ("train --float32 -q d", 0, "", ""),
    ("train -q d -", 0, "solver_type MCSVM_CS\n(.|\n)*\"}\n", ""),
    ("train d -", 0, "solver_type MCSVM_CS\n(.|\n)*\"}\n", RESULT),
    ("train -v 5 d", 0, r"Cross Validation Accuracy = \S+%\n", ""),
    ("train -v 5 -q -w3 2 --weights w d", 0, r"Cross Validation Accuracy = \S+%\n", ""),
    ("train -v 100 -q d2", 0, r"Cross Validation Accuracy = \S+%\n", r"WARNING: # folds > # data\..*\n"),
    ("train --max-iter 1 -e 1e-9 -q d", 0, "", r"WARNING: not converged \(max_iter\): .* -e, .*\n"),
    ("train --max-iter 1 -e 1e-9 -q --strict d", 3, "", r"WARNING: not converged \(max_iter\): .*\n"),
    ("train --max-iter 1 -e 1e-9 -v 2 --strict d", 3, r"Cross .*\n", r"WARNING: not converged: 2 of 2 fits; .*\n"),
    ("train -v 3 --metric balanced d", 0, r"Cross Validation Balanced accuracy = \S+%\n", ""),
    ("train -v 3 --metric auc -s ldm d2", 0, r"Cross Validation AUC = \S+%\n", ""),
    ("train -C d", 0, r"8 points, 5 folds: 40 fits\n(.*\n){9}Best C = \S+  CV accuracy = \S+%\n", ""),
    ("train -C -q -v 2 --metric f1_macro --grid C=1,2,mu=0:0.5:1 d", 0,
     r"Best C = \S+ mu = \S+  CV macro F1 = \S+%\n", ""),
    ("train --grid C=1,2 --grid=mu=0:0.5:1 -v 2 -q d", 0, r"Best C = \S+ mu = \S+  CV accuracy = \S+%\n", ""),
    ("train --grid lambda=1,10 -v 2 -q --refit d out", 0, r"Best lambda = \S+  CV accuracy = \S+%\n", ""),
    ("train --search --refit -q --table t.csv -v 2 -s l2svc --log l --multiclass ovo d out", 0, "Best C = .*\n", ""),
    ("train --grid outer=ccp,paper -e 0.1 -v 2 -q --table t.json d", 0,
     "Best outer = (ccp|paper)  CV accuracy = .*\n", ""),
    ("train --verbose -q d", 0, "", r"d: 60 rows, 4 features, 240 values, read in .* s\n(\d+ sweeps, .*\n)+"
     r"the certificate is one of a critical point; by mu = 0 no weights have an objective below [\d.]+ \(.* s\)\n"),
    ("train --verbose -q --mu 0 d", 0, "", r"d: 60 rows, .*\n(\d+ sweeps, .*\n)+"),
    ("train --verbose -q --restarts 2 d", 0, "", r"d: 60 rows, .*\n(\d+ sweeps, .*\n)+"
     r"objectives of 2 of 2 restarts: [\d.]+, [\d.]+\nthe certificate is .*\n"),
    ("train --version", 0, r"margin-train \S+\n", ""),
    ("train --help", 0, r"usage: margin-train (.|\n)*", ""),
    ("train -h l2svc nothere", 0, r"-s l2svc, -s 1, -s 2: (.|\n)*", ""),
    ("train --help=logstic", 2, "",
     r"margin-train: --help logstic: no such topic \(did you mean logistic\?\): give mcodm, .*" + HINT),
    ("train -t 2 d out", 0, KERNEL_RESULT, ""),
    ("train -t rbf -g 0.5 -m 1 -B 1 -c 4 d out", 0, KERNEL_RESULT, ""),
    ("train -t 1 -d 2 -g 1 -r 1 -s ldm d2 out", 0, KERNEL_RESULT, ""),
    ("train --kernel linear -s 3 d2 out", 0, KERNEL_RESULT, "note: -s 3 is l1svc, .* is -s l1svr -R\n"),
    ("train -t 3 -g 0.01 -r 1 -s cs -q d out", 0, "", ""),
    ("train -q -t 2 d2 -", 0, "svm_type c_svc\nkernel_type rbf\n(.|\n)*\"}\n", ""),
    ("train -s mamc --multiclass ovo --time-limit 1e-9 --strict -q d", 3, "",
     r"WARNING: not converged \(time_limit\): certificate inf of objective 0, .*\n"),
    ("train -t 2 -v 3 d", 0, r"Cross Validation Accuracy = \S+%\n", ""),
    ("train -t 2 -s odm --multiclass ecoc -v 3 d", 0, r"Cross Validation Accuracy = \S+%\n", ""),
    ("train -s ldm d out", 0, RESULT, ""),
    ("train -s ldm --multiclass ovo d out", 0, RESULT, ""),
    ("train -s l2svc --multiclass ecoc -t 2 d out", 0, KERNEL_RESULT, ""),
    ("train -t 2 --max-iter 1 -e 1e-9 -q --strict d", 3, "", r"WARNING: not converged \(max_iter\): .*\n"),
    ("predict d k out", 0, ACCURACY, ""),
    ("predict -q --scores --margins d k", 0, r"([123]( \S+){4}\n){60}", ""),
    ("predict -q --scores --margins d2 k2", 0, r"(-?1( \S+){2}\n){40}", ""),
    ("predict -q --scores --margins d o", 0, r"([123]( \S+){3} -?[0-2]\n){60}", ""),
    ("predict wide k out", 0, r"Accuracy = \S+% \(\d/2\)\n", ""),
    ("predict d m out", 0, ACCURACY, ""),
    ("predict -q d m out", 0, "", ""),
    ("predict -b 0 --threads 2 d m out", 0, ACCURACY, ""),
    ("predict d m", 0, r"([123]\n){60}", ACCURACY),
    ("predict -q d m -", 0, r"([123]\n){60}", ""),
    ("predict -q d2 m2", 0, r"(-?1\n){40}", ""),
    ("predict -q words mt", 0, "((h|sp)am\n|\u00e9\n){30}", ""),
    ("predict -q --scores d m", 0, r"([123]( \S+){3}\n){60}", ""),
    ("predict -q --margins d m", 0, r"([123] \S+\n){60}", ""),
    ("predict -q --margins --scores d m", 0, r"([123]( \S+){4}\n){60}", ""),
    ("predict -q --margins d2 m", 0, r"([123] nan\n[123] \S+\n){20}", ""),
    ("predict wide m out", 0, r"Accuracy = \S+% \(\d/2\)\n",
     "WARNING: 3 values of features above 4, the model's last, are left out\n"),
    ("predict fractions m out", 0, r"Accuracy = \S+% \(\d+/30\)\n",
     r"WARNING: 20 rows with a label that the model does not know \(0.5 is the first\): counted as predicted wrong\n"),
    ("predict -q fractions m out", 0, "", ""),
    ("predict --version", 0, r"margin-predict \S+\n", ""),
    ("predict --help", 0, r"usage: margin-predict (.|\n)*", ""),
    # data and run-time errors
    ("train nothere", 1, "", "margin-train: can't open input file nothere: No such file or directory\n"),
    ("train .", 1, "", r"margin-train: can't open input file \.: Is a directory\n"),
    ("train d no/folder", 1, "", "margin-train: can't save model to file no/folder: no such directory\n"),
    ("train d .", 1, "", r"margin-train: can't save model to file \.: is a directory\n"),
    ("train bad", 1, "", r"margin-train: bad:2:\d+: .*\n"),
    ("train zero", 1, "", r"margin-train: zero:1:\d+: .*--zero-based.*\n"),
    ("train words", 0, RESULT, ""),
    ("train one", 1, "", "margin-train: one: mcodm needs at least 2 classes, .*\n"),
    ("train --weights nothere d", 1, "", "margin-train: can't open weight file nothere: No such file .*\n"),
    ("train --weights wbad d", 1, "", "margin-train: wbad:2:3: '-2' is not a weight: .*\n"),
    ("train --weights wfew d", 1, "", "margin-train: wfew:3:1: 2 weights for 60 rows: .*\n"),
    ("train -C --resume nothere d", 1, "8 points, .*\n", "margin-train: can't use log file nothere: No such .*\n"),
    ("train -C -q --resume w d", 1, "", "margin-train: w:1:1: not a line of a search's log; start .*\n"),
    ("train -C -q --table no/t.csv d", 1, "", "margin-train: can't write table no/t.csv: no such directory\n"),
    ("train -v 3 -q --log no/folder d", 1, "", "margin-train: can't use log file no/folder: No such .*\n"),
    ("train --log no/folder d", 1, "", "margin-train: can't open log file no/folder: No such file .*\n"),
    ("predict nothere m out", 1, "", "margin-predict: can't open input file nothere: No such file .*\n"),
    ("predict d nothere out", 1, "", "margin-predict: can't open model file nothere: No such file .*\n"),
    ("predict d m no/folder", 1, "", "margin-predict: can't open output file no/folder: no such .*\n"),
    ("predict d d2 out", 1, "", r"margin-predict: d2:1:1: unknown text in model file: \[.*\n"),
    ("predict bad m out", 1, "", r"margin-predict: bad:2:\d+: .*\n"),
    ("predict words m out", 1, "", r"margin-predict: words:1:1: .*\n"),
    # usage errors
    ("predict m d out", 2, "", "margin-predict: m is a model, and d is none: give them the other way round" + HINT),
    ("train", 2, "", r"margin-train: give a LIBSVM text file, (.|\n)*\n  margin-train data/dna dna.model (.|\n)*\n"),
    ("train -q", 2, "", "margin-train: the training_set_file is missing" + HINT),
    ("train d m x", 2, "", "margin-train: too many files: d m x" + HINT),
    ("train -", 2, "", "margin-train: with standard input .* model_file must be named" + HINT),
    ("train -Z d", 2, "", "margin-train: unknown option: -Z" + HINT),
    ("train --cost 5 d", 2, "", "margin-train: unknown option: --cost" + HINT),
    ("train --tll 5 d", 2, "", r"margin-train: unknown option: --tll \(did you mean --tol\?\)" + HINT),
    ("train -solver cs d", 2, "", r"margin-train: unknown option: -solver \(did you mean --solver\?\)" + HINT),
    ("train -Q d", 2, "", r"margin-train: unknown option: -Q \(did you mean -q\?\)" + HINT),
    ("train -b 1 d", 2, "", r"margin-train: unknown option: -b \(did you mean --probability\?\)" + HINT),
    ("train --tol=-1e-3 d", 2, "", r"margin-train: --tol -1e-3: tol = -0.001 is not allowed: .*" + HINT),
    ("train -B -1e-3 -5 d", 2, "", r"margin-train: unknown option: -5" + HINT),
    ("train -cost 5 d", 2, "", r"margin-train: unknown option: -cost \(.*\)" + HINT),
    ("train -c16 d", 2, "", r"margin-train: unknown option: -c16 \(.*-c 16\)" + HINT),
    ("train -c 1x d", 2, "", "margin-train: -c 1x: C = '1x' is not allowed: .*" + HINT),
    ("train -c 1_0 d", 2, "", "margin-train: -c 1_0: C = '1_0' is not allowed: .*" + HINT),
    ("train -c -1 d", 2, "", "margin-train: -c -1: C = -1.0 is not allowed: .*" + HINT),
    ("train -c nan d", 2, "", "margin-train: -c nan: .*" + HINT),
    ("train -c", 2, "", "margin-train: -c: its argument is missing" + HINT),
    ("train -c -q d", 2, "", "margin-train: -c: its argument is missing" + HINT),
    ("train --quiet=1 d", 2, "", "margin-train: --quiet takes no argument" + HINT),
    ("train -s abc d", 2, "", "margin-train: -s abc: solver = 'abc' is not known: .*" + HINT),
    ("train -s logstic d", 2, "",
     r"margin-train: -s logstic: solver = 'logstic' is not known \(did you mean logistic\?\): .*" + HINT),
    ("train -s C-SVC d", 2, "", r"margin-train: -s C-SVC: .* \(did you mean l1svc\?\): .*" + HINT),
    ("train -s ridge d", 2, "", r"margin-train: -s ridge: solver = 'ridge' is not known: give .*" + HINT),
    ("train --scale rnge d", 2, "", r"margin-train: --scale rnge \(did you mean range\?\): scale = .*" + HINT),
    ("train -s 99 d", 2, "", "margin-train: -s 99: solver = '99' is not known: .*" + HINT),
    ("train -s cs --mu 0.5 d", 2, "", "margin-train: --mu is not a parameter of -s cs, but of mcodm, odm" + HINT),
    ("train -c 1 --lambda 2 d", 2, "", "margin-train: C and lambda are two names .*" + HINT),
    ("train -s cs --multiclass ovo d", 2, "", "margin-train: --multiclass is not a parameter of -s cs, .*" + HINT),
    ("train --multiclass all -s ldm d", 2, "", r"margin-train: --multiclass all: .* give ovr \| ovo \| ecoc" + HINT),
    ("train -t 4 d", 2, "", r"margin-train: -t 4: kernel = '4' .* sigmoid, or 0 to 3" + HINT),
    ("train -t precomputed d", 2, "", r"margin-train: -t precomputed: kernel = .* sigmoid, or 0 to 3" + HINT),
    ("train -t x d", 2, "", "margin-train: -t x: kernel = 'x' is not allowed: .*" + HINT),
    ("train -t", 2, "", "margin-train: -t: its argument is missing" + HINT),
    ("train -g 1 d", 2, "", "margin-train: gamma = 1.0 is of no use without a kernel: .*" + HINT),
    ("train -t 0 -g 1 d", 2, "", "margin-train: gamma = 1.0 is of no use with kernel = linear: .*" + HINT),
    ("train -t 2 -d 3 d", 2, "", "margin-train: degree = 3 is of no use with kernel = rbf: .*" + HINT),
    ("train -t 2 -r 0 d", 2, "", "margin-train: coef0 = 0.0 is of no use with kernel = rbf: .*" + HINT),
    ("train -m 10 d", 2, "", "margin-train: cache = 10.0 is of no use without a kernel: .*" + HINT),
    ("train -t 2 -g 0 d", 2, "", "margin-train: -g 0: gamma = 0.0 is not allowed: .*" + HINT),
    ("train -t 1 -d 2.5 d", 2, "", "margin-train: -d 2.5: degree = '2.5' is not allowed: .*" + HINT),
    ("train -t 2 -m 0 d", 2, "", "margin-train: -m 0: cache = 0.0 is not allowed: .*" + HINT),
    ("train -s cs --algorithm paper d", 2, "", "margin-train: --algorithm paper is not a route of -s cs: .*" + HINT),
    ("train --outer best d", 2, "", r"margin-train: --outer best: .* give ccp \| paper" + HINT),
    ("train -v 1 d", 2, "", "margin-train: n-fold cross validation: n must >= 2 .*" + HINT),
    ("train -v x d", 2, "", "margin-train: n-fold cross validation: n must >= 2 .*" + HINT),
    ("train --grid x d", 2, "", "margin-train: grid 'x': 'x' has no name: .*" + HINT),
    ("train --grid c=1 nothere", 2, "",
     r"margin-train: grid: 'c' is not a parameter of mcodm \(did you mean C\?\): .*" + HINT),
    ("train -s 11 --grid p=0,1 nothere", 2, "", r"margin-train: grid: 'p' .* \(did you mean epsilon\?\): .*" + HINT),
    ("train --grid C=0:1:3 d", 2, "", "margin-train: grid 'C=0:1:3': C = 0.0 is not allowed: .*" + HINT),
    ("train --grid C=log2:1 d", 2, "", "margin-train: grid: C = 'log2:1' is no range: .*" + HINT),
    ("train --grid C=1,2 --grid mu=0,C=4 d", 2, "",
     "margin-train: grid 'mu=0,C=4': another grid names C too: give all its values in one" + HINT),
    ("train --grid C=1,2 --grid 4 d", 2, "", "margin-train: grid '4': '4' has no name: .*" + HINT),
    ("train -C -c 4 --grid C=1,2 d", 2, "", "margin-train: C is given as 4.0 and by the grid: .*" + HINT),
    ("train -s 0 -p 0.5 d", 2, "", "margin-train: -p is not a parameter of -s logistic, .*, l1svr, l2svr" + HINT),
    ("train -s msvmav -C -c 4 d", 2, "", "margin-train: -c is not a parameter of -s msvmav, .*" + HINT),
    ("train --grid C=1,lambda=2 d", 2, "", "margin-train: C and lambda are two names .*" + HINT),
    ("train -C -v 1 d", 2, "", "margin-train: n-fold cross validation: n must >= 2 .*" + HINT),
    ("train -C --metric auc,accuracy,auc d", 2, "", "margin-train: .* auc is named twice: give each .* once" + HINT),
    ("train -h 0 d m", 2, "", "margin-train: -h 0: svm-train's -h, shrinking, has .* leave it out, .*" + HINT),
    ("train -t rbf -g auto d", 2, "", "margin-train: -g auto: .* leave it out for 1/features, .*" + HINT),
    ("train -C --metric f2 d", 2, "", "margin-train: --metric f2: metric = 'f2' .*" + HINT),
    ("train --metric auc d", 2, "", "margin-train: --metric is for cross-validation: .*" + HINT),
    ("train --refit d", 2, "", "margin-train: --refit is for a search: .*" + HINT),
    ("train -v 5 --table t.csv d", 2, "", "margin-train: --table is for a search: .*" + HINT),
    ("train -C --table t.xls d", 2, "", r"margin-train: --table t.xls: .* ends in .csv or .json" + HINT),
    ("train -C --log a --resume b d", 2, "", "margin-train: --resume goes on writing .*" + HINT),
    ("train --resume b d", 1, "", "margin-train: can't open checkpoint b: No such file or directory\n"),
    ("train -w 2 d", 2, "", "margin-train: -w: the label is missing, .*" + HINT),
    ("train -w2 1 --class-weight balanced d", 2, "", "margin-train: -w2 and --class-weight: give one of them" + HINT),
    ("train --class-weight equal d", 2, "", ".*class_weight = 'equal' is not allowed: give balanced" + HINT),
    ("train -w1 0 d", 2, "", r"margin-train: -w1 0: give a number in \(0, inf\)" + HINT),
    ("train -wcat 2 d", 2, "", "margin-train: -wcat: the label is not a number, as those of the data are" + HINT),
    ("train -w1", 2, "", "margin-train: -w1: its argument is missing" + HINT),
    ("predict d", 2, "", "margin-predict: the test_file or the model_file is missing" + HINT),
    ("predict d m out x", 2, "", "margin-predict: too many files: d m out x" + HINT),
    ("predict - -", 2, "", "margin-predict: only one .*" + HINT),
    ("predict -b 1 d m out", 1, "", r"margin-predict: m: the model has no calibration, .*: train it with margin-train "
     r"--probability, or svm-train -b 1 \(.* only supported for logistic regression\); --scores .*\n"),
    ("predict -b 2 d m out", 2, "", r"margin-predict: -b 2: probability = 2 is not allowed: .*" + HINT),
    ("train -v 3 --probability d", 0, "Cross Validation Accuracy = .*%\\n",
     "WARNING: --probability is left out: it is part of a model, and none is written\\n"),
    ("train -v 3 d out2", 0, "Cross Validation Accuracy = .*%\\n",
     "WARNING: model_file out2 is not written: cross-validation and search leave no model, .* --refit\\n"),
    ("train --probability d2 out", 0, RESULT, ""),
    ("train -q --scale range d out", 0, "", ""),
    ("train -q --scale=unit -v 3 d", 0, r"Cross Validation Accuracy = \S+%\n", ""),
    ("train --scale std d", 2, "", r"margin-train: --scale std: scale = 'std' is not allowed: give range \| .*" + HINT),
    ("train --probability one", 1, "", "margin-train: one: mcodm needs at least 2 classes, .*\n"),
    ("train --probability bad2", 1, "", "margin-train: bad2: probability needs at least 2 different rows of each "
     "class: label 2 has 1\n"),
    ("predict -c 1 d m out", 2, "", "margin-predict: unknown option: -c" + HINT),
    ("predict --threads 0 d m out", 2, "", "margin-predict: --threads 0: .*" + HINT),
]


@pytest.mark.parametrize("line, status, out, err", GOLDEN, ids=[case[0] for case in GOLDEN])
def test_golden(folder, capfd, line, status, out, err):
    capfd.readouterr()
    before = set(os.listdir())
    program, *arguments = line.split()
    assert COMMANDS[program](arguments) == status
    shown = capfd.readouterr()
    assert re.fullmatch(out, shown.out), shown.out
    assert re.fullmatch(err.replace("{0}", program), shown.err), shown.err
    made = set(os.listdir()) - before
    assert not [name for name in made if name.startswith(".")]
    if status not in (0, 3):
        assert not made


def test_model_is_named_after_the_file_and_lands_here(folder):
    (folder / "sub").mkdir()
    (folder / "d").rename(folder / "sub" / "d.txt")
    assert train.main(["-q", "sub/d.txt"]) == 0
    assert (folder / "d.txt.model").exists()


@pytest.mark.parametrize(("words", "class_weight"), [("-w2 3", {2: 3.0}), ("--class-weight balanced", "balanced")])
def test_command_equals_library(folder, words, class_weight):
    from marginlinear.api import train as api_train
    from marginlinear.libsvm import load_libsvm

    options = f"-q -s mcodm -c 4 -e 0.01 --mu 0.3 --seed 5 -B 1 {words}"
    assert train.main([*options.split(), "d", "out"]) == 0
    X, y = load_libsvm("d")
    model = api_train(X, y, C=4, tol=0.01, mu=0.3, seed=5, bias=1, class_weight=class_weight)
    loaded = load_model("out")
    assert loaded.weights.tobytes() == model.weights.tobytes()
    assert loaded.params == model.params


@pytest.mark.parametrize("options, given", [
    ("-s mcodm -t 2 -g 0.5 -B 1", {"solver": "mcodm", "kernel": "rbf", "gamma": 0.5, "bias": 1}),
    ("-s ldm -t 1 -d 2 -r 1 --multiclass ovo", {"solver": "ldm", "kernel": "poly", "degree": 2, "coef0": 1,
                                                "multiclass": "ovo"}),
    ("-s 3 -t 0 -m 0.01 --multiclass ecoc", {"solver": "l1svc", "kernel": "linear", "cache": 0.01,
                                             "multiclass": "ecoc"}),
    ("-s odm --multiclass ecoc", {"solver": "odm", "multiclass": "ecoc"}),
])
def test_kernel_command_equals_library(folder, options, given):
    from marginlinear.api import train as api_train
    from marginlinear.libsvm import load_libsvm

    assert train.main(["-q", *options.split(), "d", "out"]) == 0
    X, y = load_libsvm("d")
    model, loaded = api_train(X, y, **given), load_model("out")
    assert loaded.weights.tobytes() == model.weights.tobytes()
    assert loaded.params == model.params
    assert np.allclose(loaded.decision_function(X), model.decision_function(X), rtol=1e-12, atol=1e-12)
    assert predict.main(["-q", "d", "out", "labels"]) == 0
    assert np.loadtxt("labels").tolist() == model.predict(X).tolist()


def test_single_precision_comes_back_as_it_was(folder):
    assert train.main(["-q", "--float32", "-t", "2", "d", "out"]) == 0
    values = load_model("out").support.data
    assert (values == values.astype(np.float32)).all()


@pytest.mark.parametrize("options", ["-s l2svc", "-s mcodm -B 1", "-s l2svc --probability", "-s mcodm -t 2", "-v 3",
                                     "--weights w -s cs", "--scale unit", "--scale range -v 2", "--algorithm newton"])
@pytest.mark.parametrize("file", ["d", "counts"])
def test_narrow_data_give_the_same_model(file, options, folder, monkeypatch, capsys):
    """Byte for byte, beside a reader that holds int32 and float64."""
    rng = np.random.default_rng(5)
    lines = (" ".join([str(i % 3), *(f"{j}:{rng.poisson(2 * (j % 3 == i % 3))}" for j in range(1, 6))])
             for i in range(60))
    (folder / "counts").write_text("\n".join(lines))
    assert read_libsvm(file, narrow=True).data.dtype == (np.float32 if file == "counts" else np.float64)
    command = ["-q", *options.split(), file, *(() if "-v" in options else ("out",))]
    outcomes = []
    for reader in (read_libsvm, lambda path, narrow, **how: read_libsvm(path, **how)):
        monkeypatch.setattr("marginlinear.libsvm.read_libsvm", reader)
        assert train.main(command) == 0
        outcomes.append((capsys.readouterr().out, None if "-v" in options else (folder / "out").read_bytes()))
    assert outcomes[0] == outcomes[1]


def test_precomputed_models_are_for_python(folder, capsys):
    (folder / "p").write_text("svm_type c_svc\nkernel_type precomputed\nnr_class 2\ntotal_sv 1\nrho 0\nlabel 1 -1\n"
                              "nr_sv 1 0\nSV\n1 0:1\n")
    assert predict.main(["d2", "p", "out"]) == 1
    assert "margin-predict: p: the kernel is precomputed" in capsys.readouterr().err


def test_equal_runs_write_equal_files(folder):
    for name in "ab":
        assert train.main(["-q", "d", name]) == 0
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_scores_are_those_of_the_library(folder, capsys):
    from marginlinear.libsvm import load_libsvm

    for data, name in (("d", "m"), ("d2", "m2"), ("d", "k"), ("d2", "k2"), ("d", "o")):
        X, y = load_libsvm(data)
        model = load_model(name)
        assert predict.main(["-q", "--scores", "--margins", data, name, "out"]) == 0
        table = np.loadtxt("out")
        assert table[:, 0].tolist() == model.predict(X).tolist()
        assert table[:, 1:-1].tobytes() == np.ascontiguousarray(model.decision_function(X)).tobytes()
        assert table[:, -1].tobytes() == model.margins(X, y).tobytes()


@pytest.mark.parametrize("name, added", [("m", ["--scores", "--margins"]), ("o", ["--scores", "--margins"]),
                                         ("k", ["--scores", "--margins"]), ("m", []), ("m2", [])])
def test_prediction_of_a_file_of_several_blocks(folder, monkeypatch, capsys, name, added):
    # A label that is no integer, and features beyond the model's, in some blocks only.
    text = (folder / "d").read_text() + "2.5 1:1 7:1\n" + (folder / "d").read_text() + "1 2:1 9:1 10:2\n"
    (folder / "long").write_text(text)
    for threads in ("1", "2"):
        printed = set()
        for size in (50, 1 << 20):
            monkeypatch.setattr(cli_data, "BLOCK", size)
            assert predict.main([*added, "--threads", threads, "long", name, f"out{size}"]) == 0
            printed.add(capsys.readouterr())
        assert len(printed) == 1
        assert "/122)" in printed.pop().out
        assert (folder / "out50").read_bytes() == (folder / f"out{1 << 20}").read_bytes()


def test_an_error_behind_the_first_block_leaves_the_old_output(folder, monkeypatch):
    monkeypatch.setattr(cli_data, "BLOCK", 50)
    (folder / "long").write_text((folder / "d").read_text() + "1 1:x\n")
    (folder / "out").write_text("old")
    before = set(os.listdir())
    assert predict.main(["-q", "long", "m", "out"]) == 1
    assert (folder / "out").read_text() == "old"
    assert set(os.listdir()) == before


def test_log(folder):
    assert train.main(["-q", "--log", "log", "d", "out"]) == 0
    *checks, result = map(json.loads, (folder / "log").read_text().splitlines())
    assert checks
    keys = {"n_iter", "seconds", "objective", "bound", "certificate", "residual"}
    assert all(set(check) == keys for check in checks)
    info = load_model("out").info
    assert (result["status"], result["objective"]) == ("converged", info.objective)


def test_log_of_folds(folder):
    assert train.main(["-q", "-v", "3", "--log", "log", "d"]) == 0
    entries = map(json.loads, (folder / "log").read_text().splitlines())
    results = [entry for entry in entries if "status" in entry]
    assert sorted(entry["fold"] for entry in results) == [1, 2, 3]


def test_folds_are_stratified_and_seeded():
    from marginlinear.data.folds import stratified_folds

    labels = np.repeat([5, 7, 9], [50, 23, 4])
    folds = stratified_folds(labels, 5, 0)
    for label in (5, 7, 9):
        counts = np.bincount(folds[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert np.ptp(np.bincount(folds)) <= 1
    assert (folds == stratified_folds(labels, 5, 0)).all()
    assert (folds != stratified_folds(labels, 5, 1)).any()


def test_help_lists_every_parameter(capsys):
    assert train.main(["--help", "all"]) == 0
    whole = capsys.readouterr().out
    for method in registry.methods().values():
        assert train.main(["--help", method.name]) == 0
        text = capsys.readouterr().out
        assert text in whole and text.startswith(f"-s {method.name}") and method.summary in " ".join(text.split())
        assert all(param.flag in text for param in method.params)
    assert all(param.flag in whole for param in (*train.DECLARED, params.MULTICLASS, *params.KERNELS))


def test_one_letter_and_one_flag_has_one_meaning():
    declared = {param for param in train.DECLARED if param.name}
    for method in registry.methods().values():
        declared |= set(method.takes)
    names = {}
    for param in declared:
        for flag in filter(None, (param.flag, param.letter)):
            # -p is LIBLINEAR's epsilon and a norm: no method takes both.
            if param is not params.EPSILON or flag != "p":
                assert names.setdefault(flag, (param.name, param.type)) == (param.name, param.type)
    assert not any({params.EPSILON, params.NORM} <= set(method.takes) for method in registry.methods().values())


# ---- processes


def command(program, *arguments, **options):
    return subprocess.run([sys.executable, "-m", f"marginlinear.cli.{program}", *arguments],
                          capture_output=True, timeout=60, **options)


@pytest.mark.parametrize("program, arguments", [
    ("train", ["--help"]), ("train", ["-c", "x"]), ("train", ["--version"]), ("predict", ["--help"]),
    ("predict", []),
])
def test_help_and_usage_import_no_numpy(folder, program, arguments):
    code = (f"import sys\nfrom marginlinear.cli import {program}\nstatus = {program}.main({arguments!r})\n"
            "assert 'numpy' not in sys.modules and 'marginlinear.api' not in sys.modules\nsys.exit(status)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == (0 if "--" in str(arguments) else 2), done.stderr


def test_files_need_no_scipy(folder):
    code = ("import sys\nfrom marginlinear.cli import predict, train\n"
            "assert train.main(['-q', 'd', 'out']) == 0 == predict.main(['-q', 'd', 'out', 'labels'])\n"
            "assert train.main(['-q', '-v', '2', 'd']) == 0\n"
            "assert 'numpy' in sys.modules and 'scipy' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_what_the_encoding_lacks_is_shown_otherwise(folder, monkeypatch):
    """In messages; data are the bytes that they are in any encoding."""
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    (folder / "cyr").write_text("\u0436 1:1\n\u0437 2:1\n", "utf-8")
    done = command("subset", "cyr", "2", "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"2 of 2 rows: \\u0436 (1), \\u0437 (1)\n", b"")
    assert command("train", "-q", "-s", "l2svc", "cyr", "model").returncode == 0
    assert command("predict", "-q", "cyr", "model").stdout.decode() == "\u0436\n\u0437\n"
    if sys.platform.startswith("linux"):
        shutil.copy("d", b"caf\xe9")
        done = command("check", b"caf\xe9")
        assert (done.returncode, done.stderr) == (0, b"") and done.stdout.startswith(b"caf\\udce9: 60 rows, ")


def test_labels_stay_whatever_is_added(folder, capsys):
    liblinear = "solver_type MCSVM_CS\nnr_class 2\nlabel 1 2\nnr_feature 2\nbias -1\nw\n0.5 -0.5 \n-1 1 \n"
    (folder / "theirs").write_text(liblinear)
    assert train.main(["-q", "-B", "1", "--scale", "range", "d", "scaled"]) == 0
    for data, model in [("d", "m"), ("d", "m2"), ("d2", "m2"), ("d2", "m"), ("words", "mt"), ("wide", "m"),
                        ("d", "theirs"), ("d", "scaled")]:
        labels = []
        for options, out in ([], "plain"), (["--scores"], "scores"), (["--margins"], "margins"):
            assert predict.main([*options, data, model, out]) == 0
            labels.append([row.split()[0] for row in (folder / out).read_text("utf-8").splitlines()])
        assert labels[0] == labels[1] == labels[2]
        found = capsys.readouterr()
        assert found.out.splitlines() == found.out.splitlines()[:1] * 3
        assert ("3 values of features above 4" in found.err) == (data == "wide")


HUGE = """
import resource, sys
import scipy.linalg
from marginlinear import registry
from marginlinear.cli import inspect, predict, scale, train
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for name, method in registry.methods().items():
    searched = ["-C"] if any(p.grid for p in method.params) else []
    more = [] if method.one_class else [[*searched, "-v", "2"]]
    for options in ([], *more, ["--scale", "range"], *([["-t", "2"]] if method.kernels else [])):
        print(train.main(["-q", "-s", name, *options, "huge", *["out"] * ("-v" not in options)]))
print(predict.main(["huge", "k2"]), inspect.main(["k2", "huge"]), scale.main(["huge"]), scale.main(["-l", "0", "huge"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the address space")
def test_a_huge_index_is_shown_in_its_place(folder):
    (folder / "huge").write_text("1 1:1\n-1 2:1 2147483647:1 # 3:1\n1 1:2\n-1 2:3\n")
    done = subprocess.run([sys.executable, "-c", HUGE], capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert set(done.stdout.split()) == {"1"} and len(lines) == len(done.stdout.split()) > 3 * len(registry.MODULES)
    for line in lines:
        assert re.match(r"margin-\w+: huge:2:8: this index makes 2147483647 features, more than there is memory for: .",
                        line), line


@pytest.mark.parametrize("line, redirections, status, err", [
    ("train -q d new", "<&- >&- 2>&-", 0, ""),
    ("train d new", ">&-", 1, "margin-train: standard output: Bad file descriptor\n"),
    ("train -w9 2 d new", "2>&-", 0, ""),
    ("train -w9 2 d new", "2>/dev/full", 0, ""),
    ("train -C --grid C=1,2 -v 2 --refit d new", ">/dev/full", 1, "margin-train: standard output: No space left .*\n"),
    ("train -C --grid C=1,2 -v 2 --refit d new", ">&- 2>&-", 1, ""),
    ("train d - >new", "2>&-", 0, ""),
    ("train - new <d", "2>&-", 0, ""),
    ("predict - m", "<&-", 1, "margin-predict: can't open input file -: Bad file descriptor\n"),
    ("predict wide m new", "2>&-", 0, ""),
    ("predict wide m >new", "<&- 2>&-", 0, ""),
    ("predict d m", ">&-", 1, "margin-predict: standard output: Bad file descriptor\n"),
    ("scale -o new d", "<&- >&- 2>&-", 0, ""),
    ("scale d", ">&-", 1, "margin-scale: standard output: Bad file descriptor\n"),
    ("inspect m d", ">&-", 1, "margin-inspect: standard output: Bad file descriptor\n"),
    ("train --nonsense", "2>&-", 2, ""),
    ("train --log /dev/full d new", "", 1, "margin-train: can't write log file /dev/full: No space left .*\n"),
    ("train -v 2 --log /dev/full d", "", 1, "margin-train: can't use log file /dev/full: No space left .*\n"),
    ("subset d 2 /dev/full", "", 1, "margin-subset: can't write /dev/full: No space left .*\n"),
    ("subset d 2 /dev/null /dev/full", "", 1, "margin-subset: can't write /dev/null or /dev/full: No space left .*\n"),
    ("train -q --checkpoint /dev/full d m2", "", 0, "(WARNING: the checkpoint cannot be written, .*\n)+"),
])
def test_closed_and_full_streams(folder, line, redirections, status, err):
    """What is made is whole whatever streams are closed; results that cannot be shown are a failure."""
    def run(redirections):
        words = f"{sys.executable} -m marginlinear.cli.{line} {redirections}"
        done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        made = Path("new")
        content = made.read_bytes() if made.exists() else None
        made.unlink(missing_ok=True)
        return done, content

    done, content = run(redirections)
    assert done.returncode == status and re.fullmatch(err, done.stderr), done.stderr
    if "new" in line:
        assert content == run("")[1]


def test_standard_input(folder):
    data = (folder / "d").read_bytes()
    done = command("train", "-q", "-", "piped", input=data)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (folder / "piped").read_bytes() == (folder / "m").read_bytes()
    done = command("predict", "-q", "-", "piped", input=data)
    assert len(done.stdout.splitlines()) == 60
    done = command("predict", "-q", "d", "-", input=(folder / "m").read_bytes())
    assert len(done.stdout.splitlines()) == 60
    done = command("train", "-", "piped", input=b"1 1:1\n2 x\n")
    assert done.returncode == 1
    assert done.stderr.startswith(b"margin-train: <stdin>:2:3: ")


@pytest.mark.parametrize("unbuffered", [[], ["-u"]])
def test_a_reader_that_goes_away_is_no_error_message(folder, monkeypatch, unbuffered):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    (folder / "big").write_bytes((folder / "d").read_bytes() * 2000)
    arguments = [sys.executable, *unbuffered, "-m", "marginlinear.cli.predict", "-q", "--scores", "big", "m"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"1 ")
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


def test_unbuffered_standard_output_is_whole(folder):
    (folder / "big").write_bytes((folder / "d").read_bytes() * 2000)
    assert predict.main(["-q", "--scores", "big", "m", "out"]) == 0
    done = command("predict", "-q", "--scores", "big", "m", env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert done.stdout == (folder / "out").read_bytes()


def test_standard_output_full(folder):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "marginlinear.cli.predict", "-q", "d", "m"], stdout=full,
                              stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"margin-predict: standard output: No space left on device\n"


def test_a_full_disk_leaves_the_old_model(folder):
    (folder / "many").write_text("".join(f"{i % 40} {i + 1}:1\n" for i in range(400)))
    old = (folder / "m").read_bytes()
    before = set(os.listdir())

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = command("train", "-q", "many", "m", preexec_fn=limit)
    assert done.returncode == 1
    assert done.stderr == b"margin-train: can't save model to file m: File too large\n"
    assert (folder / "m").read_bytes() == old
    assert set(os.listdir()) == before
    done = command("predict", "-q", "--scores", "many", "m", "labels", preexec_fn=limit)
    assert done.returncode == 1
    assert done.stderr.endswith(b"margin-predict: labels: File too large\n")
    assert set(os.listdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"),
                    reason="mounting a small tmpfs needs root")
def test_a_full_file_system_leaves_the_old_model(folder):
    (folder / "many").write_text("".join(f"{i % 40} {i + 1}:1\n" for i in range(400)))
    small = folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        shutil.copy("m", small / "model")
        done = command("train", "-q", "many", "small/model")
        assert done.returncode == 1
        assert done.stderr == b"margin-train: can't save model to file small/model: No space left on device\n"
        assert (small / "model").read_bytes() == (folder / "m").read_bytes()
        assert os.listdir(small) == ["model"]
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.skipif(not shutil.which("liblinear-predict"), reason="needs liblinear-tools")
@pytest.mark.parametrize("data", ["d", "d2"])
@pytest.mark.parametrize("options", [[], ["-B", "1"], ["-s", "cs"], ["-s", "ldm"], ["-s", "3", "-B", "1"]])
def test_liblinear_serves_the_model(folder, data, options):
    (folder / "test").write_text((folder / data).read_text() + "1\n2\n" + rows([1, 2, 3] * 30, seed=1))
    assert train.main(["-q", *options, data, "out"]) == 0
    assert predict.main(["-q", "test", "out", "ours"]) == 0
    subprocess.run(["liblinear-predict", "test", "out", "theirs"], check=True, capture_output=True)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


@pytest.mark.skipif(not shutil.which("svm-predict"), reason="needs libsvm-tools")
@pytest.mark.parametrize("data, options", [
    *(("d2", f"-s {solver} -t {kernel} {bias}") for solver in ("mcodm", "cs", "l1svc", "ldm", "odm")
      for kernel in ("0", "1 -d 2 -r 1", "2", "3 -g 0.01") for bias in ("", "-B 1")),
    *(("d", f"-s l1svc --multiclass ovo -t {kernel} {bias}") for kernel in ("0", "1 -d 2 -r 1", "2", "3 -g 0.01")
      for bias in ("", "-B 1")),
])
def test_libsvm_serves_the_model(folder, data, options):
    """Rows of nothing, features and labels that are new."""
    (folder / "test").write_text((folder / data).read_text() + "1\n2\n3 9:1\n" + rows([1, 2, 3] * 30, seed=1))
    assert train.main(["-q", *options.split(), data, "out"]) == 0
    assert predict.main(["-q", "test", "out", "ours"]) == 0
    subprocess.run(["svm-predict", "test", "out", "theirs"], check=True, capture_output=True)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


@pytest.mark.skipif(not shutil.which("svm-train"), reason="needs libsvm-tools")
@pytest.mark.parametrize("data", ["d", "d2"])
@pytest.mark.parametrize("kernel", range(4))
def test_we_serve_libsvms_models(folder, data, kernel):
    subprocess.run(["svm-train", "-q", "-t", str(kernel), data, "out"], check=True, capture_output=True)
    (folder / "test").write_text((folder / data).read_text() + "1\n2\n3 9:1\n" + rows([1, 2, 3] * 30, seed=1))
    assert predict.main(["-q", "test", "out", "ours"]) == 0
    subprocess.run(["svm-predict", "test", "out", "theirs"], check=True, capture_output=True)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


@pytest.mark.parametrize("data, options", [
    ("d", []), ("d2", []), ("d", ["-s", "ldm", "--multiclass", "ovo", "-t", "2"]), ("d2", ["-s", "l1svc", "-B", "1"]),
    ("words", ["--text-labels"])])
def test_probabilities_are_those_of_the_library(folder, data, options):
    assert train.main(["-q", "--probability", *options, data, "p"]) == 0
    assert train.main(["-q", *options, data, "plain"]) == 0
    assert predict.main(["-q", "-b", "1", "--scores", "--margins", data, "p", "out"]) == 0
    model = load_model("p")
    X, y = marginlinear.load_libsvm(data, text_labels=data == "words")
    head, *lines = (folder / "out").read_text(encoding="utf-8").splitlines()
    names = head.split()
    shown = model.classes[::-1] if len(model.classes) == 2 else model.classes
    assert names == ["labels", *map(str, shown)]
    words = [line.split() for line in lines]
    assert [row[0] for row in words] == [str(label) for label in model.predict(X)]
    k = len(shown)
    found = np.array([row[1 : k + 1] for row in words], dtype=float)
    p = model.predict_proba(X)
    assert np.array_equal(found, p[:, ::-1] if k == 2 else p)
    scores = model.decision_function(X).reshape(len(y), -1)
    assert np.array_equal(np.array([row[k + 1 : -1] for row in words], dtype=float), scores)
    assert np.array_equal([float(row[-1]) for row in words], model.margins(X, y))
    # The rest of the file is the plain one's.
    assert (folder / "p").read_bytes().split(b"marginlinear 1")[0] == (
        folder / "plain").read_bytes().split(b"marginlinear 1")[0]


@pytest.mark.skipif(not shutil.which("liblinear-train"), reason="needs liblinear-tools")
@pytest.mark.parametrize("data", ["d", "d2"])
@pytest.mark.parametrize("solver", [0, 6, 7])
def test_probabilities_of_liblinears_models(folder, data, solver):
    subprocess.run(["liblinear-train", "-q", "-s", str(solver), data, "out"], check=True)
    (folder / "test").write_text((folder / data).read_text() + "1\n2\n" + rows([1, 2, 3] * 30, seed=1))
    assert predict.main(["-q", "-b", "1", "test", "out", "ours"]) == 0
    subprocess.run(["liblinear-predict", "-b", "1", "test", "out", "theirs"], check=True, capture_output=True)
    ours, theirs = ([line.split() for line in (folder / name).read_text().splitlines()] for name in ("ours", "theirs"))
    assert ours[0] == theirs[0]
    assert [[row[0], *(f"{float(p):g}" for p in row[1:])] for row in ours[1:]] == theirs[1:]


@pytest.mark.skipif(not shutil.which("liblinear-train"), reason="needs liblinear-tools")
@pytest.mark.parametrize("data", ["d", "d2"])
@pytest.mark.parametrize("solver", range(8))
def test_we_serve_liblinears_models(folder, data, solver):
    subprocess.run(["liblinear-train", "-q", "-s", str(solver), data, "out"], check=True)
    (folder / "test").write_text((folder / data).read_text() + "1\n2\n" + rows([1, 2, 3] * 30, seed=1))
    assert predict.main(["-q", "test", "out", "ours"]) == 0
    subprocess.run(["liblinear-predict", "test", "out", "theirs"], check=True, capture_output=True)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()


def test_a_score_that_is_no_number_names_its_row(tmp_path, capsys):
    """inf - inf is no label: by whatever is written of the rows."""
    marginlinear.save_model(marginlinear.Model([[1e200], [-1e200]], [1, 2]), tmp_path / "m")
    (tmp_path / "d").write_text("1 1:1\n2 1:1e200\n2 1:1e200 2:1e200\n")
    for options in ([], ["--scores"], ["--margins"]):
        assert predict.main([*options, str(tmp_path / "d"), str(tmp_path / "m"), str(tmp_path / "out")]) == 1
        assert "a score of row 2 is NaN" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
