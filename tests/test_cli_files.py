"""No output of a command takes the place of one of its other files."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import marginlinear
from marginlinear.cli import compare, export, inspect, plot, predict, scale, subset, train

ROOT = str(Path(marginlinear.__file__).parents[1])
COMMANDS = {"train": train.main, "predict": predict.main, "scale": scale.main, "plot": plot.main,
            "inspect": inspect.main, "export": export.main, "compare": compare.main,
            "subset": subset.main}
ENDINGS = {"plot": ".png", "export": ".sql"}
DATA = "1 1:1 2:2\n2 1:3\n" * 3

# {x} and {y} are two paths of one file: one that is written, and one that is read.
OVER_INPUTS = [
    "train {y} {x}", "train --log {x} {y}", "train --log {x} {y} new", "train -C --log {x} {y}",
    "train -C --table {x} {y}", "train -v 2 --resume {x} {y}", "train --weights {y} d {x}",
    "train --weights {y} --log {x} d new",
    "train -C --weights {y} --table {x} d", "train -C --weights {y} --resume {x} d", "train -C --refit {y} {x}",
    "predict {y} m {x}", "predict d {y} {x}", "predict --scores {y} m {x}",
    "scale -o {x} {y}", "scale --unit -o {x} {y}", "scale -s {x} {y}", "scale -r {y} -o {x} d",
    "plot margins -o {x} {y} m", "plot histogram -o {x} d {y}", "plot margins -o {x} d m {y}",
    "plot convergence -o {x} {y}", "plot convergence -o {x} log {y}", "plot search -o {x} {y}",
    "plot reliability -o {x} {y} m",
    "plot ranks -o {x} {y}", "compare -s cs -o {x} {y}", "compare -s cs --journal {x} d {y}",
    "compare -s cs --resume {x} {y}", "compare -s cs -o {x} --groups {y} d",
    "export {y} {x}", "export --names {y} m {x}", "subset {y} 2 {x}", "subset {y} 2 d2 {x}",
]
# Both are written.
OVER_OUTPUTS = [
    "train --log {x} d {y}", "train -C --log {x} --table {y} d", "train -C --resume {x} --table {y} d",
    "train -C --refit --log {x} d {y}", "train -C --refit --table {x} d {y}", "train -C --refit --resume {x} d {y}",
    "scale -o {x} -s {y} d", "subset d 2 {x} {y}",
    "compare -s cs -o {x} --journal {y} d", "compare -s cs -o {x} -o {y} d",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    for name in ("d", "m", "log"):
        Path(name).write_text(DATA)
    os.mkdir("real")
    os.symlink("real", "linked")
    return tmp_path


def names_of(kind, line):
    """Two paths of one file, whose name has the ending that the command asks for; it exists but for some kinds."""
    one, two = (name + ENDINGS.get(line.split()[0], ".csv") for name in ("real/one", "real/two"))
    if not kind.startswith("new"):
        Path(one).write_text(DATA)
    if kind == "hard link":
        os.link(one, two)
    elif kind in ("symbolic link", "new link"):
        os.symlink(os.path.basename(one), two)
    else:
        two = {"name": one, "new name": f"./{one}", "new folder": one.replace("real", "linked")}[kind]
    return one, two


def contents():
    return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}


@pytest.mark.parametrize("line, kind", [
    *((line, kind) for line in OVER_INPUTS + OVER_OUTPUTS for kind in ("name", "hard link", "symbolic link")),
    *((line, kind) for line in OVER_OUTPUTS for kind in ("new name", "new link", "new folder")),
])
def test_files_stay_apart(folder, capfd, line, kind):
    for x, y in (names := names_of(kind, line)), names[::-1]:
        before = contents()
        program, *arguments = line.format(x=x, y=y).split()
        assert COMMANDS[program](arguments) == 2
        message = (r"margin-\w+: (\S+) (\S+) and \S+ (\S+) are one file: give \1 another name\n"
                   r"Try 'margin-\w+ --help'\.\n")
        found = re.fullmatch(message, capfd.readouterr().err)
        assert sorted(found.groups()[1:]) == sorted((x, y))
        assert contents() == before


@pytest.mark.parametrize("line", ["train d -", "predict d m", "scale --unit d", "inspect m d"])
def test_a_redirected_stream_is_a_file_too(folder, line):
    program, *arguments = line.split()
    command = [sys.executable, "-m", f"marginlinear.cli.{program}", *arguments]
    before = contents()
    with open("d", "ab") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
    assert (done.returncode, contents()) == (2, before), done.stderr


def test_standard_input_is_a_file_too(folder):
    with open("d", "rb") as rows:
        done = subprocess.run([sys.executable, "-m", "marginlinear.cli.train", "-", "d"], stdin=rows,
                              capture_output=True)
    assert done.returncode == 2
    assert done.stderr.startswith(b"margin-train: model_file d and training_set_file - are one file: ")


def test_devices_may_be_shared(folder, capfd):
    before = contents()
    assert train.main(["-q", "--log", "/dev/null", "d", "/dev/null"]) == 0
    assert train.main(["-q", "/dev/null", "/dev/null"]) == 1
    assert scale.main(["-q", "-s", "/dev/null", "-o", "/dev/null", "d"]) == 0
    assert contents() == before


def test_a_model_takes_the_place_of_models_alone(folder, capsys):
    Path("test").write_text(DATA)
    before = contents()
    assert train.main(["d", "test"]) == 2 and "model_file test is there, and is no model" in capsys.readouterr().err
    assert train.main(["-C", "--refit", "d", "test"]) == 2 and contents() == before
    Path("empty").touch()
    for name in ("new", "new", "empty"):
        assert train.main(["-q", "d", name]) == 0
