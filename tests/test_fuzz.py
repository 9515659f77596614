"""The campaigns of tools/fuzz: what is kept in their corpora passes, and what goes wrong is found, kept and told."""

import argparse
import importlib
import shutil
import sys
from pathlib import Path

import pytest

from tools.fuzz import __main__ as driver
from tools.fuzz import worker

ROOT = Path(__file__).resolve().parent.parent
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="campaigns run on Linux"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")]

FAKE = '''
import ctypes, os, resource

def seeds():
    return [bytes([n]) for n in range(4)]

def mutate(rng, data, other):
    return bytes([rng.randrange(200)]) + data[:20]

def check(data):
    with open(LOG, "ab") as log:
        log.write(data.hex().encode() + b"\\\\n")
    if data[0] == 7 and MODE == "crash":
        ctypes.string_at(0)
    if data[0] == 7 and MODE == "exit":
        os._exit(0)
    if data[0] == 7 and MODE == "hang":
        while True:
            pass
    if data[0] == 7 and MODE == "memory":
        # A process begins with the peak of the one that started it, here of all tests before.
        b"1" * ((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) + (300 << 20))
    assert data[0] != 7 or MODE != "wrong", f"{data} is wrong"
    assert data[0] != 9 or MODE != "crash", f"{data} is wrong too"
    return data[0] % 10
'''


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """campaign(mode, seed) -> (findings, inputs in their order) of a target where those that begin with 7 are bad."""
    folder = tmp_path / "tools" / "fuzz"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def campaign(mode, seed=0, inputs=600):
        log = tmp_path / "log"
        log.write_text("")
        head = f"LOG, MODE = {str(log)!r}, {mode!r}\n"
        (folder / "fake.py").write_text(head + FAKE.replace("\\\\n", "\\n"))
        args = argparse.Namespace(inputs=inputs, jobs=1, files=[], sanitize=None, corpus=None, seed=seed,
                                  findings=tmp_path / "findings")
        return driver.campaign(args, "fake", 60)[0], log.read_text().split()

    return campaign


@pytest.mark.parametrize("mode, told", [
    ("wrong", "AssertionError"), ("crash", "ended with -11"), ("exit", "ended with 0"), ("hang", "took more than"),
    ("memory", "MemoryError")])
def test_what_goes_wrong_is_found_and_kept(fake, capsys, monkeypatch, mode, told):
    monkeypatch.setattr(driver, "PATIENCE", (0.3 if mode == "hang" else 30, 30))
    findings, inputs = fake(mode)
    kind, = (kind for kind in findings if told in kind)
    path = findings[kind]
    assert f"python -m tools.fuzz fake {path}" in capsys.readouterr().out
    assert Path(path).read_bytes()[0] == 7 and kind in Path(f"{path}.txt").read_text()
    # The campaign went on behind it, and has what the process had told before it died.
    assert len(inputs) >= 600 and not inputs[-1].startswith("07")
    assert len(findings) == (2 if mode == "crash" else 1)


def test_the_same_seed_makes_the_same_inputs(fake, capsys):
    findings, first = fake("", seed=3)
    assert findings == {} and len(first) == 600
    assert "fake: 600 inputs in " in (out := capsys.readouterr().out) and ", 0 findings" in out
    assert fake("", seed=3)[1] == first != fake("", seed=4)[1]


@pytest.mark.parametrize("name", ["reader", "models", "ranges", "logs", "arrays", "stores", "commands", "fits"])
def test_seeds_and_corpus_pass(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    target = importlib.import_module(f"tools.fuzz.{name}")
    inputs = worker.seeds_of(target, name, None)
    assert inputs
    outcomes = {target.check(data) for data in inputs}
    # They reach something: not all are refused in the same way.
    assert len(outcomes) > 2


def test_faults_while_files_are_written(tmp_path, capfd):
    """Some faults; the gate tries them all."""
    args = driver.parser().parse_args(["writes", "--inputs", "12", "--findings", str(tmp_path)])
    assert driver.campaign(args, "writes", 60) == ({}, False)
    assert "writes: 12 inputs in " in capfd.readouterr().out


def test_the_command_line(capsys):
    for words in (["nothing"], ["reader", "--seconds", "x"], []):
        with pytest.raises(SystemExit) as error:
            driver.main(words)
        assert error.value.code == 2
    assert set(driver.TARGETS) <= {path.stem for path in (ROOT / "tools" / "fuzz").glob("*.py")}
