"""What commands tell of their options: --help, manual pages, completion; and how words become options."""

import pkgutil
import re
import shutil
import subprocess
import sys
from importlib import import_module

import pytest

from marginlinear import cli
from marginlinear.options import CLASS_WEIGHT, CommandLine, UsageError, did_you_mean
from marginlinear.params import BIAS, EPSILON, NORM, C, Param

COMMANDS = [module for found in pkgutil.iter_modules(cli.__path__)
            if hasattr(module := import_module(f"{cli.__name__}.{found.name}"), "PROGRAM")]
of_each_command = pytest.mark.parametrize("module", COMMANDS, ids=lambda module: module.PROGRAM)
PAIR = Param("pair", str, None, "", letter="y", metavar="LOWER UPPER")
FLAG = Param("flag", bool, False, "", letter="q")
DECLARED = C, BIAS, EPSILON, NORM, PAIR, FLAG, CLASS_WEIGHT


def help_of(module, capsys, *words):
    capsys.readouterr()
    assert module.main(["--help", *words]) == 0
    return capsys.readouterr().out


def test_words_become_options():
    typed = "a -c 2 --C=3 -B -1e-3 -y -1 2 -q -w1 2 -w-1 -0.5 -wa=b 1 - -p 4 -- -c b"
    line = CommandLine(typed.split(), DECLARED)
    assert line.files == ["a", "-", "-c", "b"]
    assert line.class_weights == [("1", "2"), ("-1", "-0.5"), ("a=b", "1")]
    assert (line.value(C), line.values(C), line.flag(C)) == (3, [2, 3], "--C")
    assert (line.value(BIAS), line.value(PAIR), line.value(FLAG)) == (-1e-3, "-1 2", True)
    # A letter of two is one's of those that are taken.
    assert line.value(EPSILON) == line.value(NORM) == 4
    assert line.meant(NORM, [NORM]) and not line.meant(NORM, [EPSILON]) and line.meant(NORM, [])
    empty = CommandLine([], DECLARED)
    assert (empty.files, empty.given(C), empty.value(C), empty.values(C)) == ([], False, 1.0, [])


@pytest.mark.parametrize("words, message", [
    ("-c", "-c: its argument is missing"), ("-c -q", "-c: its argument is missing"),
    ("--C -- 1", "--C: its argument is missing"), ("-w1", "-w1: its argument is missing"),
    ("-y 1", "-y: give -y LOWER UPPER"), ("--flag=1", "--flag takes no argument"),
    ("-w 1 2", "-w: the label is missing, give -wLABEL FACTOR, such as -w1 2"),
    ("-c 1 -c2", "unknown option: -c2 (an argument is a word of its own: -c 2)"),
    ("-c=2", "unknown option: -c=2 (an argument is a word of its own: -c 2)"),
    ("-qq", "unknown option: -qq (did you mean -q?)"), ("--fla", "unknown option: --fla (did you mean --flag?)"),
    ("--bais=1", "unknown option: --bais (did you mean --bias?)"), ("-5", "unknown option: -5"),
])
def test_what_is_no_option_is_refused(words, message):
    with pytest.raises(UsageError) as refused:
        CommandLine(words.split(), DECLARED)
    assert str(refused.value) == message


def test_nothing_near_is_no_hint():
    assert did_you_mean("--cost", ["--coef0", "-c", "--C"]) == did_you_mean("-Z", ["--zero-based"]) == ""
    assert did_you_mean("--tolerance", ["--tol", "--loss"]) == " (did you mean --tol?)"


@of_each_command
def test_help_fits_a_terminal(module, monkeypatch, capsys):
    """The options that are used most on one screen, and all of them at its width."""
    for columns in (80, 132):
        monkeypatch.setenv("COLUMNS", str(columns))
        short, whole = (help_of(module, capsys, *words).splitlines() for words in ([], ["all"]))
        assert len(short) <= 40 and short[0].startswith(f"usage: {module.PROGRAM} ")
        assert short[-1] and "--help all" in "".join(short[-4:])
        assert max(map(len, short + whole)) < columns and "\xa0" not in "".join(short + whole)


@of_each_command
def test_manual_page(module, capsys):
    page = help_of(module, capsys, "man")
    assert page.startswith(f".TH {module.PROGRAM.upper()} 1 ") and "\\fB\\-\\-version\\fR" in page
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=page, capture_output=True,
                              text=True)
        assert (done.returncode, done.stderr) == (0, "")
        text = " ".join(done.stdout.split())
        assert f"NAME {module.PROGRAM} - " in text and "-h, --help [" in text and "--version show the" in text


COMPLETED = """
source /dev/stdin
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_shtab_${1//-/_} "$1" "${!#}" "${@: -2:1}"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_a_shell_completes(tmp_path, capsys):
    pytest.importorskip("shtab", reason="pip install 'marginlinear[completion]'")
    (tmp_path / "rows.txt").touch()
    scripts = {}
    for module in COMMANDS:
        for shell in ("bash", "zsh", "fish", "tcsh"):
            assert module.main(["--print-completion", shell]) == 0
            script = scripts[module.PROGRAM, shell] = capsys.readouterr().out
            if shell != "tcsh" and shutil.which(shell):
                assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0
    for words, found in [("margin-train -q -s l2", "l2svc l2svr"), ("margin-train --mul", "--multiclass --multilabel"),
                         ("margin-train -c 4 ro", "rows.txt"), ("margin-train --log ro", "rows.txt"),
                         ("margin-train -h mcod", "mcodm"), ("margin-train rows.txt --scale u", "unit"),
                         ("margin-plot ma", "margins"), ("margin-plot margins ro", "rows.txt"),
                         ("margin-scale -y 0 1 ro", "rows.txt")]:
        done = subprocess.run(["bash", "-c", COMPLETED, "bash", *words.split()], cwd=tmp_path, capture_output=True,
                              input=scripts[words.split()[0], "bash"], text=True)
        assert (done.stdout, done.stderr) == (f"{found}\n", ""), words


def test_completion_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert COMMANDS[0].main(["--print-completion", "bash"]) == 1
    assert re.fullmatch(r".*: shtab is needed: pip install .*\[completion\]'\n", capsys.readouterr().err)
    assert COMMANDS[0].main(["--print-completion", "cmd"]) == 2
