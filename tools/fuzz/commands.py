"""Command lines, each in a folder of files, most of them good: exit status 0 to 3, on 1 and 2 a message and no
traceback, no temporary file left, and no file both read and written.

An input is a JSON list: the command, then its words.
"""

import io
import json
import os
import shutil
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from marginlinear import options, params
from marginlinear.cli import export, inspect, plot, predict, scale, train
from marginlinear.registry import methods
from tools.fuzz import text

PROGRAMS = {"train": train, "predict": predict, "scale": scale, "inspect": inspect, "plot": plot,
            "export": export}
DATA = "1 1:0.5 2:1\n2 1:-1 3:2\n1 2:3\n2 3:1\n1 1:1\n2 1:-2 2:-1\n"
FILES = {"d": DATA, "d3": DATA + "3 1:4\n3 2:-4\n", "words": "a 1:1\nb 2:1\na 1:2\nb 2:2\n", "bad": "1 1:x\n",
         "empty": "", "weights": "1\n2\n1\n1\n0\n1\n", "names": "one\ntwo\nthree\n",
         "ranges": "x\n-1 1\n1 -2 1\n2 -1 3\n", "binary": "\x1f\x8b\x00\x01",
         "t.csv": "C,score\n1,0.5\n2,0.75\n", "one": "1 1:1\n",
         "log": '{"n_iter": 1, "seconds": 0.5, "objective": 2, "certificate": 0.5, "residual": null}\n'}
# Made by the commands themselves when a campaign starts.
MADE = (["train", "-q", "d", "m"], ["train", "-q", "d3", "m3"], ["train", "-q", "-s", "l1svc", "-t", "rbf", "d", "k"],
        ["train", "-q", "-s", "l2svc", "--probability", "d3", "p"], ["train", "-q", "--text-labels", "words", "w"],
        ["train", "-q", "-s", "odm", "-v", "2", "--log", "s", "d"], ["train", "-q", "--log", "h", "d", "m"])
PATHS = [*FILES, *{words[-1] for words in MADE}, "s", "h", "folder", "missing", "missing/x", "link", "hard", "-", "",
         "--", "out", "out.svg", "out.csv", "out.png", "out.c", "out.sql"]
VALUES = [number.decode() for number in text.NUMBERS] + [
    "abc", "1x", " 1", "\uff11", "1,2", "auto", "newton", "paper", "rbf", "linear", "C=1,2", "C=log2:0:1:1", "C=",
    "ovo", "ecoc", "accuracy", "auc", "f1_macro", "range", "unit", "maxabs", "a,b", "time", "sweeps", "0 1", "é",
    "\udcff", *methods()]
KINDS = ["margins", "histogram", "convergence", "search", "reliability"]
NO_PATHS = {"--title", "--labels", "--param", "--score", "--cluster", "--name", "--from-table", "--long"}
STARTS = (
    ["train", "d", "out"], ["train", "-C", "--grid", "C=1,2", "-v", "2", "--table", "out.csv", "--log", "out", "d"],
    ["train", "-s", "odm", "-t", "rbf", "-w1", "2", "--weights", "weights", "--strict", "d", "out"],
    ["train", "-v", "2", "--resume", "s", "-s", "odm", "d"], ["train", "--time-limit", "1e-6", "d3", "-"],
    ["predict", "d", "m", "out"], ["predict", "--scores", "--margins", "-b", "1", "d3", "p"],
    ["predict", "d", "k", "-"], ["scale", "-l", "0", "-s", "out", "d"], ["scale", "-r", "ranges", "-o", "out", "d"],
    ["scale", "-y", "0", "1", "d3"],
    ["inspect", "m", "d"], ["inspect", "--json", "--names", "names", "--weights", "weights", "m", "d"],
    ["train", "--json", "-v", "2", "--groups", "weights", "--metric", "accuracy,auc", "d"],
    ["train", "--json", "-C", "--grid", "C=1,2", "--fold-file", "weights", "--refit", "d", "out"],
    ["predict", "--json", "d3", "p"], ["predict", "--json", "-b", "1", "d3", "p", "out"],
    ["plot", "convergence", "-o", "out.svg", "h"], ["plot", "search", "-o", "out.png", "t.csv"],
    ["plot", "margins", "-o", "out.svg", "d", "m"], ["export", "--name", "f", "m", "out.c"],
    ["export", "--names", "names", "--long", "a,b,c", "m3", "out.sql"])


def flags_of(module):
    declared = {id(p): p for name in dir(module) for p in params_in(getattr(module, name))}
    if module is train:
        declared |= {id(p): p for p in (*params.RUN, *params.AROUND, *params.OWN)}
    declared |= {id(p): p for p in (options.HELP, options.VERSION, options.QUIET, options.ZERO_BASED, params.THREADS)}
    return sorted({flag for p in declared.values() for flag in (p.flag, p.letter and "-" + p.letter) if flag})


def params_in(value):
    return [p for p in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(p, params.Param)]


FLAGS = {name: [*flags_of(module), "-w1", "-w"] for name, module in PROGRAMS.items()}


class Folder:
    """The files that command lines name, the same before each."""

    def __init__(self):
        self.path = Path(tempfile.gettempdir()) / f"commands-{os.getpid()}"
        self.whole = self.path.with_suffix(".whole")
        self.whole.mkdir(exist_ok=True)
        os.chdir(self.whole)
        for name, content in FILES.items():
            Path(name).write_text(content, "latin-1")
        for words in MADE:
            assert run(words)[0] == 0, words
        Path("folder").mkdir(exist_ok=True)
        self.contents = {path.name: path.read_bytes() for path in self.whole.iterdir() if path.is_file()}
        self.known = {*self.contents, "folder", "link", "hard"}

    def restore(self):
        os.chdir(self.whole)
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(self.whole, self.path)
        os.chdir(self.path)
        os.symlink("d", "link")
        os.link("m", "hard")


FOLDER = None


def seeds():
    return [json.dumps(words).encode() for words in STARTS]


def mutate(rng, data, other):
    words, second = json.loads(data), json.loads(other)
    flags = FLAGS[words[0]]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randint(1, len(words))
        way = rng.randrange(7)
        if way == 0:
            words[at:at] = [rng.choice(flags), rng.choice(VALUES)]
        elif way == 1:
            words[at : at + 1] = [rng.choice(PATHS)]
        elif way == 2:
            words[at : at + 1] = [rng.choice(VALUES)]
        elif way == 3:
            words[at:at] = [rng.choice(flags + KINDS if words[0] == "plot" else flags)]
        elif way == 4:
            del words[at : at + 1]
        elif way == 5:
            words[at : at + rng.choice((0, 1, 2))] = second[1:][rng.randint(0, 3) :][:2]
        elif way == 6:
            rest = words[1:]
            rng.shuffle(rest)
            words[1:] = rest
    # Nothing outside of the folder, and no waiting for what many fits would take.
    words = [word for word in words if not word.startswith(("/", "..")) and "=/" not in word][:16]
    return json.dumps(words).encode()


def check(data):
    global FOLDER
    words = json.loads(data)
    if FOLDER is None:
        FOLDER = Folder()
    FOLDER.restore()
    status, told = run(words)
    assert status in (0, 1, 2, 3), f"status {status}: {told}"
    assert status in (0, 3) or told.startswith((f"margin-{words[0]}: ", "WARNING: ")), f"status {status}: {told!r}"
    assert "Traceback" not in told, told
    left = {path.name for path in FOLDER.path.iterdir()} - FOLDER.known
    assert not [name for name in left if name.endswith(".tmp")], f"left behind: {left}"
    if not NO_PATHS & set(words):
        named = [os.path.realpath(word) for word in words[1:] if word not in ("", "-")]
        named = ["m" if name.endswith("/hard") else os.path.basename(name) for name in named]
        for name, content in FOLDER.contents.items():
            if named.count(name) > 1:
                assert Path(name).read_bytes() == content, f"{name} is named twice, and was written"
    return words[0], status, text.shape_of(told)


def run(words):
    """(status, what was told on standard error) of one command."""
    module = PROGRAMS[words[0]]
    told, said = io.StringIO(), io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape")
    with redirect_stderr(told), redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module.main(words[1:]), told.getvalue()
