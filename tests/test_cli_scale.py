"""margin-scale: a table of command lines, svm-scale on the same files, files of ranges and what is wrong with them."""

import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import marginlinear as ml
from marginlinear import options
from marginlinear.cli import predict, scale, train
from marginlinear.data.arrays import CSR
from marginlinear.data.scaling import Extremes
from marginlinear.libsvm import libsvm_blocks, read_libsvm

DATA_FOLDER = Path(__file__).resolve().parents[1] / "data"
ROOT = str(Path(ml.__file__).parents[1])
needs_svm_scale = pytest.mark.skipif(not shutil.which("svm-scale"), reason="needs libsvm-tools (svm-scale)")
DATA = "+1 1:2 3:-1.5 4:7\n-1 1:4 2:0.1 4:7 # comment\n\n2.50 2:-3 3:1e-3 4:7\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").write_text(DATA)
    (tmp_path / "words").write_text("ham 1:1 2:2\nspam 1:3\n\u00e9 2:4\n", encoding="utf-8")
    (tmp_path / "new").write_text("1 1:3 5:2 9:1\n-1 2:-1\n1\n")
    (tmp_path / "bad").write_text("1 1:1\n2 1:x\n")
    (tmp_path / "zero").write_text("1 0:3 5:2\n2 0:1\n")
    (tmp_path / "same").write_text("1 1:3\n1 1:1\n")
    (tmp_path / "far").write_text("1 2:1e308\n2 2:-1e308\n")
    (tmp_path / "empty").write_text("# nothing\n")
    assert scale.main(["-s", "ranges", "-o", "scaled", "d"]) == 0
    return tmp_path


HINT = r"\nTry 'margin-scale --help'\.\n"
ONCE = "can be read once only, which -r FILE or --unit can do with: give the name of a file"
# command line, exit status, stdout, stderr: patterns for the whole text
GOLDEN = [
    ("d", 0, r"\+1 2:0\.9354838709677418 3:-1\n-1 1:1 2:1 3:0\.9986675549633579\n2\.50 1:-1 2:-1 3:1\n", ""),
    ("-l 0 -u 2 d", 0, r"\+1 1:1 2:1\.9354838709677418\n-1 1:2 2:2 3:1\.99866\d+\n2\.50 3:2\n", ""),
    ("--maxabs d", 0, r"\+1 1:0\.5 3:-1 4:1\n-1 1:1 2:0\.0(3)+ 4:1\n2\.50 2:-1 3:0\.000(6)+ 4:1\n", ""),
    ("--unit same", 0, "1 1:1\n1 1:1\n", ""),
    ("-l 0 words", 0, "ham 1:0\\.3(3)+ 2:0\\.5\nspam 1:1\n\u00e9 2:1\n", ""),
    ("-y -5 5 -l 0 d", 0, r"0\.714285714285714\d 1:0\.5 .*\n-5 1:1 .*\n5 3:1\n", ""),
    ("-r ranges new", 0, r"1 1:0\.5 2:0\.93\d+ 3:0\.99\d+\n-1 1:-1 2:0\.29\d+ 3:0\.99\d+\n1 1:-1 .*\n",
     "WARNING: 2 values of features that ranges does not list, feature 5 the first of them, are left out\n"
     "WARNING: original #nonzeros 4, new #nonzeros 9: zeros do not stay zeros; use --maxabs, or -l 0 .*\n"),
    ("-r ranges -l 0 -y 0 1 d", 0, r"\+1 2:.*\n.*\n.*\n", "WARNING: -l -y are left out: the ranges .* of ranges\n"
     "WARNING: 3 values of features that ranges does not list, feature 4 .*\n"),
    ("--zero-based -l 0 zero", 0, "1 0:1 5:1\n2\n", ""),
    ("-q -s saved -o out d", 0, "", ""),
    ("-- d", 0, r"\+1 .*\n.*\n.*\n", ""),
    ("", 2, "", "margin-scale: one data_file is needed" + HINT),
    ("d d", 2, "", "margin-scale: one data_file is needed, not d d" + HINT),
    ("-l 1 d", 2, "", "margin-scale: inconsistent lower/upper specification: 1 is not below 1" + HINT),
    ("-l x d", 2, "", "margin-scale: -l x: lower = 'x' is not allowed: give number .*" + HINT),
    ("-y 1 d", 2, "", "margin-scale: -y 1 d: lower = 'd' is not allowed: .*" + HINT),
    ("d -y 1", 2, "", "margin-scale: -y: give -y LOWER UPPER" + HINT),
    ("-y 1 1 d", 2, "", "margin-scale: inconsistent -y specification: 1 is not below 1" + HINT),
    ("-s x -r ranges d", 2, "", "margin-scale: cannot use -s and -r simultaneously" + HINT),
    ("--unit --maxabs d", 2, "", "margin-scale: cannot use --maxabs and --unit simultaneously" + HINT),
    ("--unit -s x d", 2, "", "margin-scale: cannot use -s and --unit simultaneously" + HINT),
    ("--maxabs -r ranges d", 2, "", "margin-scale: cannot use -r and --maxabs simultaneously" + HINT),
    ("--maxabs -u 2 d", 2, "", "margin-scale: cannot use -u and --maxabs simultaneously" + HINT),
    ("-x d", 2, "", "margin-scale: unknown option: -x" + HINT),
    ("-", 2, "", f"margin-scale: standard input {ONCE}" + HINT),
    ("nosuch", 1, "", "margin-scale: can't open input file nosuch: No such file or directory\n"),
    ("-r nosuch d", 1, "", "margin-scale: can't open range file nosuch: No such file or directory\n"),
    ("-o no/such d", 1, "", "margin-scale: can't open output file no/such: no such directory\n"),
    ("bad", 1, "", "margin-scale: bad:2:5: value 'x' is not a number\n"),
    ("--unit bad", 1, "", "margin-scale: bad:2:5: value 'x' is not a number\n"),
    ("zero", 1, "", "margin-scale: zero:1:3: index 0 in '0:3', .*--zero-based.*\n"),
    ("-y 0 1 words", 1, "", "margin-scale: words:1:1: label 'ham' is not a number.*\n"),
    ("-y 0 1 same", 1, "", "margin-scale: same: all labels are 1, there is no range of them to be scaled\n"),
    ("far", 1, "", r"margin-scale: far: feature 2 has values from -1e\+308 to 1e\+308, too far .*\n"),
    ("empty", 1, "", "margin-scale: empty: the file has no rows: only comments or blank lines\n"),
    ("/dev/null", 1, "", f"margin-scale: /dev/null: it is no plain file and {ONCE}\n"),
]


@pytest.mark.parametrize("line, status, out, err", GOLDEN, ids=[case[0] for case in GOLDEN])
def test_golden(folder, capfd, line, status, out, err):
    capfd.readouterr()
    before = set(os.listdir())
    assert scale.main(line.split()) == status
    shown = capfd.readouterr()
    assert re.fullmatch(out, shown.out), shown.out
    assert re.fullmatch(err, shown.err), shown.err
    assert set(os.listdir()) - before == ({"saved", "out"} if "saved" in line else set())


def test_help_lists_every_option(capsys):
    assert scale.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(option.flag in text for option in (*scale.OPTIONS, options.HELP, options.VERSION))


def test_help_imports_no_numpy(folder):
    code = "import sys; from marginlinear.cli import scale; scale.main(['--help']); assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={"PYTHONPATH": ROOT})


def random_rows(m=80, n=12, signed=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, n)) * 10.0 ** rng.integers(-3, 4, n) + rng.integers(-2, 3, n)
    X[rng.random((m, n)) < 0.4] = 0
    X[:, 3], X[:, 5] = 0, 2.5
    X[:, 7] = np.abs(X[:, 7])
    return X if signed else np.abs(X)


def words(text):
    return [[word.split(":") for word in line.split()] for line in text.splitlines()]


def assert_same(ours, theirs):
    """The labels of svm-scale, which have 17 digits, and its values, which have 6."""
    rounded = [[f"{float(row[0][0]):.17g}", *(f"{index}:{float(value):g}" for index, value in row[1:])]
               for row in words(ours)]
    assert rounded == [line.split() for line in theirs.splitlines()]


@needs_svm_scale
@pytest.mark.parametrize("given", ["", "-l 0", "-l -3.5 -u 0.125", "-y -2 7", "-l 0 -y 0 1"])
@pytest.mark.parametrize("signed", [True, False])
def test_svm_scale_does_the_same(folder, capfd, given, signed):
    """Ends that float32 holds: svm-scale rounds them to that."""
    rng = np.random.default_rng(1)
    for name, seed in (("train", 0), ("test", 5)):
        X = random_rows(signed=signed, seed=seed)
        ml.dump_libsvm(X, rng.integers(-3, 9, len(X)), name)
    capfd.readouterr()
    theirs = subprocess.run(["svm-scale", *given.split(), "-s", "theirs", "train"], capture_output=True, text=True)
    assert scale.main([*given.split(), "-s", "ours", "train"]) == 0
    assert_same(capfd.readouterr().out, theirs.stdout)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
    theirs = subprocess.run(["svm-scale", "-r", "ours", "test"], capture_output=True, text=True)
    assert scale.main(["-r", "theirs", "test"]) == 0
    assert_same(capfd.readouterr().out, theirs.stdout)


@needs_svm_scale
def test_svm_scale_reads_the_ranges_of_maxabs(folder, capfd):
    ml.dump_libsvm(random_rows(), np.arange(80) % 3, "train")
    assert scale.main(["--maxabs", "-s", "ours", "-o", "out", "train"]) == 0
    theirs = subprocess.run(["svm-scale", "-r", "ours", "train"], capture_output=True, text=True)
    expected = {(i, j): float(v) for i, row in enumerate(words(theirs.stdout)) for j, v in row[1:]}
    found = {(i, j): float(v) for i, row in enumerate(words((folder / "out").read_text())) for j, v in row[1:]}
    assert found.keys() == expected.keys()
    assert all(value == pytest.approx(expected[key], rel=1e-5) for key, value in found.items())
    scale.main(["-r", "ours", "-o", "again", "train"])
    assert (folder / "again").read_bytes() == (folder / "out").read_bytes()


@pytest.mark.parametrize("given", [[], ["-l", "0"], ["--maxabs"], ["--unit"]])
def test_values_are_exact(folder, given):
    X = random_rows()
    ml.dump_libsvm(X, np.arange(80) % 3, "train")
    assert scale.main([*given, "-o", "out", "train"]) == 0
    found, labels = ml.load_libsvm("out", n_features=12)
    lower = 0 if given else -1
    least, most = X.min(axis=0), X.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (X / np.abs(X).max(axis=0) if given == ["--maxabs"] else
                    X / np.sqrt((X**2).sum(axis=1, keepdims=True)) if given == ["--unit"] else
                    lower + (1 - lower) * (X - least) / (most - least))
    assert np.allclose(found.toarray(), np.nan_to_num(expected, posinf=0, neginf=0), rtol=1e-14, atol=1e-15)
    assert (labels == np.arange(80) % 3).all()


def test_many_blocks_and_compressed_files(folder, monkeypatch):
    X = random_rows(400)
    ml.dump_libsvm(X, np.arange(400) % 5, "train")
    assert scale.main(["-s", "ranges1", "-o", "out1", "train"]) == 0
    (folder / "train.xz").write_bytes(lzma.compress((folder / "train").read_bytes()))
    monkeypatch.setattr("marginlinear.cli.data.BLOCK", 600)
    monkeypatch.setattr("marginlinear.data.scaling.PART", 50)
    for threads in ("1", "3"):
        assert scale.main(["-s", "ranges2", "-o", "out2", "--threads", threads, "train.xz"]) == 0
        for name in ("ranges", "out"):
            assert (folder / f"{name}1").read_bytes() == (folder / f"{name}2").read_bytes()
    (folder / "train").write_text((folder / "train").read_text() + "1 1:x\n")
    with pytest.raises(ml.DataError, match=r"train:401:5: value 'x'"):
        list(libsvm_blocks("train", _block_size=600))


def test_extremes_of_parts_are_those_of_all():
    X = random_rows(60)
    for cuts in ([60], [1] * 60, [0, 25, 35]):
        found, low = Extremes(), 0
        for size in cuts:
            part = sparse.csr_array(X[low : low + size, : 5 + low // 2])
            found.add(CSR(part.data, part.indices, part.indptr, part.shape[1]))
            low += size
        seen = np.zeros((60, found.n))
        low = 0
        for size in cuts:
            width = min(X.shape[1], 5 + low // 2)
            seen[low : low + size, :width] = X[low : low + size, :width]
            low += size
        least, most = found.found()
        assert np.array_equal(least, seen.min(axis=0)) and np.array_equal(most, seen.max(axis=0))


def test_blocks_are_the_file():
    path = DATA_FOLDER / "dna"
    whole = read_libsvm(path)
    for threads in (1, 2):
        parts = list(libsvm_blocks(path, threads=threads, _block_size=5000))
        assert len(parts) > 10
        for name in ("data", "indices", "labels"):
            assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
        assert max(part.n_features for part in parts) == whole.n_features


def test_memory_does_not_grow_with_the_file(folder):
    """The data have 120 MB, as arrays 100 MB; the command needs far less than that beside the interpreter's."""
    line = " ".join(f"{j}:0.{j:06d}" for j in range(1, 101))
    with open("long", "w") as stream:
        for _ in range(400):
            stream.write(f"1 {line}\n" * 100)
    used = {}
    (folder / "short").write_text(f"1 {line}\n2 {line}\n")
    code = ("import resource; from marginlinear.cli import scale; assert scale.main(['--maxabs', '--threads', '1', "
            "'-o', '/dev/null', 'NAME']) == 0; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")
    for name in ("short", "long"):
        done = subprocess.run([sys.executable, "-c", code.replace("NAME", name)], check=True, capture_output=True,
                              text=True, env={"PYTHONPATH": ROOT})
        used[name] = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
    assert used["long"] < used["short"] + 30e6


def test_standard_input(folder):
    for given in (["-r", "ranges"], ["--unit"]):
        assert scale.main([*given, "-o", "direct", "d"]) == 0
        done = subprocess.run([sys.executable, "-m", "marginlinear.cli.scale", *given, "-"], check=True,
                              input=DATA.encode(), capture_output=True, env={"PYTHONPATH": ROOT})
        assert done.stdout == (folder / "direct").read_bytes()


def test_a_failure_leaves_the_old_files(folder):
    (folder / "out").write_text("old")
    (folder / "late").write_text("1 1:1\n" * 50_000 + "1 1:x\n")
    assert scale.main(["--unit", "-o", "out", "late"]) == 1
    assert (folder / "out").read_text() == "old"
    assert not [name for name in os.listdir() if name.endswith(".tmp")]


# contents, then where the message says it is wrong
BAD_RANGES = [
    ("", r"r:1:1: a line that says x is missing"),
    ("y\n0 1\n", r"r:3:1: 0 words in the line, 2 are needed"),
    ("y\n0 1\n2 1\nx\n", r"r:3:1: 2 is above 1"),
    ("y\n0 1\n1 1\nx\n-1 1\n", r"r:4:1: labels from 1 to 1 are no range"),
    ("y\n0 1\n0 1\n", r"r:4:1: a line that says x is missing"),
    ("x\n", r"r:2:1: 0 words"),
    ("x\n-1\n", r"r:2:1: 1 words"),
    ("x\n1 -1\n", r"r:2:1: 1 is above -1"),
    ("x\n-1 nan\n", r"r:2:4: 'nan' is not a finite number"),
    ("x\n-1 1e999\n", r"r:2:4: '1e999' is not a finite number"),
    ("x\n-1 1\n1 0\n", r"r:3:1: 2 words in the line, 3 are needed"),
    ("x\n-1 1\n1 0 1 2\n", r"r:3:1: 4 words"),
    ("x\n-1 1\n1 0 1\n1 0 2\n", r"r:4:1: feature 1 comes after 1"),
    ("x\n-1 1\n1 2 1\n", r"r:3:1: 2 is above 1"),
    ("x\n-1 1\n-1 2 1\n", r"r:3:1: '-1' is not a feature number"),
    ("x\n-1 1\n1.0 2 3\n", r"r:3:1: '1.0' is not a feature number"),
    ("x\n-1 1\n99999999999 2 3\n", r"r:3:1: '99999999999' is not a feature number"),
    ("x\n-1 1\n2147483648 2 3\n", r"r:3:1: '2147483648' is not a feature number"),
    ("x\n-1 1\n0 2 3\n", r"r:3:1: index 0, .*--zero-based"),
    ("x\n-1 1\n\n", r"r:3:1: 0 words"),
    ("x\n-1 1\n1 -1e308 1e308\n", r"r: feature 1 has values from"),
    ("x\n-1 1\n1 0 " + "1" * 500 + "\n", r"r:\d:\d+: "),
    ("\x00\x80\n", r"r:1:1: "),
]


@pytest.mark.parametrize("text, words", BAD_RANGES, ids=[repr(text[:30]) for text, _ in BAD_RANGES])
def test_bad_ranges(folder, capsys, text, words):
    (folder / "r").write_bytes(text.encode("latin-1"))
    assert scale.main(["-r", "r", "-o", "out", "d"]) == 1
    message = capsys.readouterr().err
    assert re.match("margin-scale: " + words, message), message
    assert not (folder / "out").exists()


def test_every_cut_of_a_file_of_ranges(folder, capsys):
    """Cut within a line it is refused, but where a number has become a shorter one or the last line is the cut."""
    text = (folder / "ranges").read_bytes()
    for size in range(len(text)):
        (folder / "r").write_bytes(text[:size])
        status = scale.main(["-r", "r", "-o", "out", "d"])
        assert status == (0 if len(text[:size].split(b"\n")[-1].split()) in (0, 3) and size > 6 else 1) or size <= 8
    assert "Traceback" not in capsys.readouterr().err


def test_a_huge_index_asks_for_no_memory(folder, monkeypatch, capsys):
    monkeypatch.setattr("marginlinear.memory.memory", lambda: 1e9)
    (folder / "wide").write_text("1 1:1\n2 2147483647:1\n")
    assert scale.main(["wide"]) == 1
    assert "2147483647 features need 96.0 GiB" in capsys.readouterr().err
    (folder / "r").write_text("x\n-1 1\n1 0 2\n2147483647 0 1\n")
    assert scale.main(["-r", "r", "wide"]) == 0
    assert capsys.readouterr().out == "1 2147483647:-1\n2 1:-1 2147483647:1\n"


@pytest.mark.parametrize("kernel", [[], ["-t", "2", "-g", "0.5"]], ids=str)
@pytest.mark.parametrize("kind, given", [("maxabs", ["--maxabs"]), ("range", ["-l", "0"]), ("unit", ["--unit"])])
def test_the_scale_of_margin_train_is_the_same(folder, kind, given, kernel):
    """Training on scaled files, and predicting them, is training with --scale."""
    for name, seed in (("train", 0), ("test", 1)):
        X = np.abs(random_rows(seed=seed))
        ml.dump_libsvm(X, 1 + np.argmax(np.log(1 + X[:, [0, 1, 8]]), axis=1), name)
    assert scale.main([*given, *([] if kind == "unit" else ["-s", "r"]), "-o", "train.scaled", "train"]) == 0
    assert scale.main([*(given if kind == "unit" else ["-r", "r"]), "-o", "test.scaled", "test"]) == 0
    common = ["-q", "-B", "1", *kernel]
    assert train.main([*common, "train.scaled", "by-hand"]) == 0
    assert train.main([*common, "--scale", kind, "train", "by-model"]) == 0
    assert predict.main(["-q", "--scores", "test.scaled", "by-hand", "out1"]) == 0
    assert predict.main(["-q", "--scores", "test", "by-model", "out2"]) == 0
    first, second = np.loadtxt("out1"), np.loadtxt("out2")
    assert np.array_equal(first[:, 0], second[:, 0])
    assert np.allclose(first[:, 1:], second[:, 1:], rtol=1e-9, atol=1e-9)
    if kernel == [] and kind != "unit" and shutil.which("liblinear-predict"):
        subprocess.run(["liblinear-predict", "test", "by-model", "out3"], check=True, capture_output=True)
        assert np.array_equal(np.loadtxt("out3"), second[:, 0])


def test_dense_parts_of_sparse_files(folder):
    """Where zeros do not stay zeros: rows become dense a few at a time."""
    X = sparse.random_array((50, 3000), density=0.01, random_state=np.random.default_rng(0), format="csr")
    ml.dump_libsvm(X, np.arange(50) % 2, "wide")
    assert scale.main(["-o", "out", "-q", "wide"]) == 0
    found = ml.load_libsvm("out", n_features=3000)[0].toarray()
    used = X.toarray().max(axis=0) > 0
    assert (found[:, used].min(axis=0) == -1).all() and (found[:, used].max(axis=0) == 1).all()
    assert not found[:, ~used].any()
