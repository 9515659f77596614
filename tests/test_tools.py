"""The scripts in tools/ and the files in data/."""

import bz2
import gzip
import hashlib
import http.server
import importlib.util
import io
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from running import has_text, until

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def load(name):
    spec = importlib.util.spec_from_file_location(f"tools_{name}", TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sys.path.append(str(TOOLS))
bench, fetch_data = load("bench"), load("fetch_data")
make_data, make_synthetic = load("make_data"), load("make_synthetic")
children, evaluation, measure, page, roofline, scaling, speed, text_part = (
    importlib.import_module(f"benchlib.{name}")
    for name in ("children", "evaluation", "measure", "page", "roofline", "scaling", "speed", "text"))


def parse(text):
    """[(label, {index: value})], strictly: single blanks, indices rising, no blank at a line's end."""
    rows = []
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        label, *features = line.split(" ")
        indices = [int(f.split(":")[0]) for f in features]
        assert indices == sorted(set(indices)), line
        rows.append((int(label), {int(i): float(v) for i, v in (f.split(":") for f in features)}))
    return rows


# make_synthetic


def synthetic(tmp_path, *options):
    path = tmp_path / "synthetic"
    assert make_synthetic.main([*options, "-q", "-o", str(path)]) == 0
    return path.read_text()


@pytest.mark.parametrize("options, rows, features, mean, classes", [
    (["--rows", "600", "--features", "900", "--nonzeros", "20", "--classes", "5"], 600, 900, 20, 5),
    (["--rows", "600", "--features", "12345", "--nonzeros", "30", "--zipf", "1.2"], 600, 12345, 30, 2),
    (["--rows", "400", "--features", "30", "--nonzeros", "12", "--values", "uniform"], 400, 30, 12, 2),
    (["--rows", "3", "--features", "4", "--nonzeros", "4"], 3, 4, 4, 2),
    (["--shape", "kdd2010", "--rows", "500"], 500, 20_000_000, 30, 2),
    (["--shape", "rcv1", "--rows", "1500", "--classes", "1000"], 1500, 47236, 50e6 / 7e5, 1000),
    (["--rows", "99", "--features", str(2**31 - 1), "--nonzeros", "9", "--zipf", "0"], 99, 2**31 - 1, 9, 2),
])
def test_synthetic_has_what_was_asked_for(tmp_path, options, rows, features, mean, classes):
    got = parse(synthetic(tmp_path, *options))
    assert len(got) == rows
    labels = {label for label, _ in got}
    assert labels == ({-1, 1} if classes == 2 else set(range(1, classes + 1)))
    indices = [i for _, row in got for i in row]
    assert min(indices) >= 1 and max(indices) <= features
    if features < 50_000:
        assert max(indices) == features
    assert np.mean([len(row) for _, row in got]) == pytest.approx(mean, rel=0.15)
    values = np.array([v for _, row in got for v in row.values()])
    if "kdd2010" in options:
        assert (values == 1).all()
    else:
        assert (values > 0).all() and (values <= 1).all()
    if "kdd2010" not in options and "uniform" not in options:
        norms = [sum(v * v for v in row.values()) for _, row in got]
        assert norms == pytest.approx(np.ones(rows), abs=1e-4)


def test_synthetic_is_reproducible_and_depends_on_the_seed(tmp_path):
    options = ["--rows", "20000", "--features", "5000", "--nonzeros", "25"]
    first = synthetic(tmp_path, *options)
    assert first == synthetic(tmp_path, *options)
    assert first != synthetic(tmp_path, *options, "--seed", "2")
    command = [sys.executable, TOOLS / "make_synthetic.py", *options]
    run = subprocess.run(command, capture_output=True, check=True)
    assert run.stdout.decode() == first
    # A summary, but no progress: standard error is not a terminal.
    assert b"20,000 rows" in run.stderr and b"\r" not in run.stderr


def test_synthetic_labels_can_be_learnt(tmp_path):
    options = ["--rows", "3000", "--features", "200", "--nonzeros", "15", "--noise", "0.1"]
    rows = parse(synthetic(tmp_path, *options))
    X = np.zeros((3000, 201))
    for i, (_, row) in enumerate(rows):
        X[i, list(row)] = list(row.values())
    y = np.array([label for label, _ in rows])
    w = np.linalg.lstsq(X[:2000], y[:2000], rcond=None)[0]
    assert np.mean(np.sign(X[2000:] @ w) == y[2000:]) > 0.8


@pytest.mark.parametrize("options, words", [
    (["--features", str(2**31)], "outside"),
    (["--classes", "1001"], "outside"),
    (["--features", "10", "--nonzeros", "11"], "more than --features"),
    (["--features", "300", "--nonzeros", "20", "--zipf", "3"], "too steep"),
])
def test_synthetic_refuses(tmp_path, capsys, options, words):
    with pytest.raises(SystemExit) as error:
        make_synthetic.main([*options, "-o", str(tmp_path / "x")])
    assert error.value.code == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_synthetic_names_a_file_that_cannot_be_written(tmp_path, capsys):
    assert make_synthetic.main(["--rows", "5", "-o", str(tmp_path / "no" / "x")]) == 1
    assert str(tmp_path / "no" / "x") in capsys.readouterr().err


# fetch_data

BODY = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(BODY).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves server.files; server.faults are taken by one request each."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        fault = server.faults.pop(0) if server.faults else None
        body = server.files.get(self.path)
        if body is None or fault in (503, 416):
            self.send_error(fault or 404)
            return
        begin = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and server.ranges and self.headers.get("If-Range") == server.etag:
            begin = int(asked[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - begin))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[begin : begin + 400_000])
            self.close_connection = True
        elif fault == "stall":
            self.wfile.write(body[begin : begin + 400_000])
            self.wfile.flush()
            server.released.wait(20)
            self.close_connection = True
        else:
            self.wfile.write(body[begin:])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    folder = "/multiclass/sector"
    httpd.files = {f"{folder}/sector.scale.bz2": BODY, f"{folder}/sector.t.scale.bz2": BODY[:5]}
    httpd.faults, httpd.requests, httpd.ranges, httpd.etag = [], [], True, '"v1"'
    httpd.released = threading.Event()
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    monkeypatch.setenv("MARGINLINEAR_DATA_URL", f"http://127.0.0.1:{httpd.server_port}/")
    yield httpd
    httpd.released.set()
    httpd.shutdown()
    thread.join()
    httpd.server_close()


ONE = "sector.scale.bz2"


def fetch(tmp_path, *options):
    return fetch_data.main([*options, "-o", str(tmp_path), "--backoff", "0", "--timeout", "10"])


def test_fetch_a_set_then_find_it_again(server, tmp_path, capsys):
    assert fetch(tmp_path, "sector") == 0
    assert (tmp_path / ONE).read_bytes() == BODY
    assert sorted(p.name for p in tmp_path.iterdir()) == ["SHA256SUMS", ONE, "sector.t.scale.bz2"]
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums.splitlines()[0] == f"{DIGEST}  {ONE}"
    capsys.readouterr()
    assert fetch(tmp_path, "sector", "--checksums", str(tmp_path / "SHA256SUMS")) == 0
    assert capsys.readouterr().out.count("already here, checksum agrees") == 2
    assert len(server.requests) == 2
    assert (tmp_path / "SHA256SUMS").read_text() == sums


def test_fetch_resumes_a_broken_connection(server, tmp_path, capsys):
    server.faults = ["cut", 503, "cut"]
    assert fetch(tmp_path, ONE, "--retries", "2", "--sha256", DIGEST.upper()) == 0
    assert (tmp_path / ONE).read_bytes() == BODY
    assert [r[1:] for r in server.requests] == [
        (None, None), ("bytes=400000-", '"v1"'), ("bytes=400000-", '"v1"'), ("bytes=800000-", '"v1"')]
    assert "400,000 of 1,024,000 bytes" in capsys.readouterr().err


def test_fetch_starts_anew_where_the_server_ignores_ranges(server, tmp_path):
    server.faults, server.ranges = ["cut"], False
    assert fetch(tmp_path, ONE) == 0
    assert (tmp_path / ONE).read_bytes() == BODY
    assert server.requests[1][1] == "bytes=400000-"


def test_fetch_starts_anew_when_the_file_has_changed(server, tmp_path, capsys):
    server.faults = ["cut"]
    assert fetch(tmp_path, ONE, "--retries", "0") == 1
    assert "the same command goes on from here" in capsys.readouterr().err
    assert (tmp_path / f"{ONE}.part").stat().st_size == 400_000
    path = f"/multiclass/sector/{ONE}"
    server.files[path], server.etag = BODY[::-1], '"v2"'
    assert fetch(tmp_path, ONE) == 0
    assert (tmp_path / ONE).read_bytes() == BODY[::-1]


@pytest.mark.parametrize("etag", [None, 'W/"v1"'])
def test_fetch_does_not_resume_without_a_strong_validator(server, tmp_path, etag):
    server.faults, server.etag = ["cut"], etag
    assert fetch(tmp_path, ONE) == 0
    assert (tmp_path / ONE).read_bytes() == BODY
    assert [r[1] for r in server.requests] == [None, None]


def test_fetch_drops_a_part_that_the_server_cannot_continue(server, tmp_path):
    server.faults = ["cut", 416]
    assert fetch(tmp_path, ONE) == 0
    assert (tmp_path / ONE).read_bytes() == BODY
    assert server.requests[-1][1] is None


def test_fetch_gives_up_after_the_retries(server, tmp_path, capsys):
    server.faults = [503] * 10
    assert fetch(tmp_path, ONE, "--retries", "2") == 1
    assert len(server.requests) == 3
    assert "503" in capsys.readouterr().err
    assert not (tmp_path / ONE).exists()


def test_fetch_goes_on_to_the_next_file_after_a_404(server, tmp_path, capsys):
    assert fetch(tmp_path, "binary/no-such-file", "sector.t.scale.bz2") == 1
    assert "404" in capsys.readouterr().err
    assert (tmp_path / "sector.t.scale.bz2").read_bytes() == BODY[:5]
    assert len(server.requests) == 2


def test_fetch_refuses_another_checksum(server, tmp_path, capsys):
    wrong = "0" * 64
    assert fetch(tmp_path, ONE, "--sha256", wrong) == 1
    assert DIGEST in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    # The record of a first download binds later ones, and so does a list that the user trusts.
    (tmp_path / "SHA256SUMS").write_text(f"{wrong}  {ONE}\n")
    assert fetch(tmp_path, ONE) == 1
    assert f"SHA256SUMS says {wrong}" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["SHA256SUMS"]
    trusted = tmp_path / "trusted"
    trusted.write_text(f"# a comment\n{DIGEST} *folder/{ONE}\n")
    (tmp_path / "SHA256SUMS").unlink()
    assert fetch(tmp_path, "sector", "--checksums", str(trusted)) == 1
    assert "sector.t.scale.bz2: not in" in capsys.readouterr().err
    assert (tmp_path / ONE).exists() and not (tmp_path / "sector.t.scale.bz2").exists()


def test_fetch_notices_that_a_file_here_has_changed(server, tmp_path, capsys):
    assert fetch(tmp_path, ONE) == 0
    (tmp_path / ONE).write_bytes(BODY[1:])
    assert fetch(tmp_path, ONE) == 1
    assert "delete" in capsys.readouterr().err
    assert (tmp_path / ONE).read_bytes() == BODY[1:]


def test_fetch_interrupted_leaves_a_part_that_can_be_continued(server, tmp_path):
    server.faults = ["stall"]
    process = subprocess.Popen([sys.executable, TOOLS / "fetch_data.py", ONE, "-o", tmp_path],
                               stderr=subprocess.PIPE)
    part = tmp_path / f"{ONE}.part"
    until(lambda: has_text(part))
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=10)[1]
    assert process.returncode == 130
    assert b"goes on from here" in err and b"Traceback" not in err
    assert 0 < part.stat().st_size < len(BODY)
    assert fetch(tmp_path, ONE, "--sha256", DIGEST) == 0
    assert server.requests[-1][1] is not None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["SHA256SUMS", ONE]


@pytest.mark.parametrize("options", [
    [], ["no-such-set"], ["../x"], ["binary/../x"], ["sector", "--sha256", DIGEST], [ONE, "--sha256", "12"],
    [ONE, "--base-url", "ftp://x"], [ONE, "--retries", "-1"]])
def test_fetch_usage(tmp_path, options, capsys):
    with pytest.raises(SystemExit) as error:
        fetch(tmp_path, *options)
    assert error.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_fetch_reports_bad_lists_and_dead_servers(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    sums = tmp_path / "sums"
    sums.write_text("abc  file\n")
    assert fetch(tmp_path, ONE, "--checksums", str(sums)) == 1
    assert f"{sums}:1:" in capsys.readouterr().err
    assert fetch(tmp_path, ONE, "--checksums", str(tmp_path / "none")) == 1
    assert "none" in capsys.readouterr().err
    assert fetch(tmp_path, ONE, "--base-url", "http://127.0.0.1:9", "--retries", "1") == 1
    assert "given up" in capsys.readouterr().err


def test_fetch_progress_is_a_bar_on_a_terminal_only():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown, hidden = Terminal(), io.StringIO()
    for stream in (shown, hidden):
        progress = fetch_data.Progress("x", stream)
        progress.update(500_000, 1_000_000)
        progress.close()
    assert "50% of 1.0 MB" in shown.getvalue() and "#" in shown.getvalue()
    assert hidden.getvalue() == ""


# data and make_data


def test_data_is_what_its_readme_says():
    rows = re.findall(r"^\| `(\S+)` \|.*$", (ROOT / "data" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(p.name for p in (ROOT / "data").iterdir() if p.name != "README.md")
    text = (ROOT / "data" / "README.md").read_text("utf-8")
    for name in rows:
        assert make_data.describe(ROOT / "data" / name) in text
        parse((ROOT / "data" / name).read_text())


def test_make_data_chooses_by_class_and_renumbers(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    rng = np.random.default_rng(0)
    for name in make_data.WHOLE:
        (source / f"{name}.xz").write_bytes(lzma.compress(b"1 1:1\n2 2:1\n"))
    (source / "digits.csv.gz").write_bytes(gzip.compress(b"0,16,0.5,7\n1,0,0,0\n"))
    for name, _, total in make_data.PARTS:
        lines = []
        for i in range(2 * total):
            words = np.flatnonzero(rng.random(60) < 0.2) + 5
            lines.append(f"{1 + (i % 4 > 0)} " + " ".join(f"{j}:0.123456" for j in words))
        (source / f"{name}.xz").write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))
    assert make_data.main([str(source), "-o", str(target)]) == 0
    assert (target / "glass").read_bytes() == b"1 1:1\n2 2:1\n"
    assert (target / "digits").read_bytes() == b"7 2:16 3:0.5\n0 1:1\n"
    train = parse((target / "news20.train").read_text())
    assert [sum(label == c for label, _ in train) for c in (1, 2)] == [500, 1500]
    assert {i for _, row in train for i in row} == set(range(1, 61))
    assert {v for _, row in train for v in row.values()} == {0.123}
    assert make_data.main([str(tmp_path / "none"), "-o", str(target)]) == 1


def test_shares_add_up():
    assert make_data.shares({1: 3, 2: 3, 3: 1}, 5) == {1: 2, 2: 2, 3: 1}
    assert make_data.shares({2: 1, 1: 1}, 1) == {2: 0, 1: 1}


def test_readme_lists_every_method():
    from marginlinear import registry

    rows = re.findall(r"^\| `(\S+)`.*\|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(registry.methods()) <= set(rows)


# bench: arithmetic


def write_problem(path, rows):
    lines = (" ".join([str(label), *(f"{i}:{v!r}" for i, v in row.items())]) for label, row in rows)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def write_model(path, solver_type, labels, W, bias=-1.0, trailer=""):
    W = np.asarray(W, float)
    body = "".join("".join(f"{float(v)!r} " for v in row) + "\n" for row in W)
    path.write_text(f"solver_type {solver_type}\nnr_class {len(labels)}\nlabel {' '.join(map(str, labels))}\n"
                    f"nr_feature {len(W) - (bias >= 0)}\nbias {bias:g}\nw\n{body}{trailer}")
    return path


def random_rows(rng, count, features, labels):
    rows = []
    for i in range(count):
        own = np.flatnonzero(rng.random(features) < 0.5) + 1 if i % 7 else []
        rows.append((int(labels[i % len(labels)]), {int(j): float(rng.normal()) for j in own}))
    return rows


def slow_objectives(rows, labels, W, bias, C, mu, theta):
    """Straight from the formulas, row by row."""
    cs = J = 0.5 * sum(v * v for row in W for v in row)
    for label, row in rows:
        s = [sum(v * W[j - 1][c] for j, v in row.items()) + (bias * W[-1][c] if bias >= 0 else 0)
             for c in range(len(labels))]
        own = labels.index(label)
        margin = s[own] - max(v for c, v in enumerate(s) if c != own)
        cs += C * max(0, 1 - margin)
        J += C / (1 - theta) ** 2 * (max(0, 1 - theta - margin) ** 2 + mu * max(0, margin - 1 - theta) ** 2)
    return cs, J


@pytest.mark.parametrize("bias", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("labels", [[3, 7], [5, 1, 9], [2, -1, 4, 8]])
def test_objectives_are_the_formulas(tmp_path, labels, bias):
    rng = np.random.default_rng(len(labels))
    rows = random_rows(rng, 60, 8, labels)
    W = rng.normal(size=(8 + (bias >= 0), len(labels)))
    trailer = 'marginlinear 1\n{"solver": "mcodm"}\n'
    model = write_model(tmp_path / "m", "MCSVM_CS", labels, W, bias, trailer)
    # The test rows have a feature that the model does not know.
    test = [(label, {**row, 9: 100.0}) for label, row in rows]
    files = write_problem(tmp_path / "x", rows), write_problem(tmp_path / "t", test)
    got = evaluation.evaluate(model, *files, 3.0, 0.7, 0.3)
    cs, J = slow_objectives(rows, labels, W.tolist(), bias, 3.0, 0.7, 0.3)
    assert got["cs"] == pytest.approx(cs, rel=1e-12)
    assert got["mcodm"] == pytest.approx(J, rel=1e-12)
    hits = 0
    for label, row in rows:
        s = sum(v * W[j - 1] for j, v in row.items()) + (bias * W[8] if bias >= 0 else np.zeros(len(labels)))
        hits += labels[int(np.argmax(s))] == label
    assert got["accuracy"] == hits / len(rows)


def test_one_column_of_a_binary_model_stands_for_two(tmp_path):
    rng = np.random.default_rng(5)
    rows = random_rows(rng, 40, 6, [7, 3])
    w = rng.normal(size=(6, 1))
    one = write_model(tmp_path / "one", "L2R_L2LOSS_SVC_DUAL", [7, 3], w)
    two = write_model(tmp_path / "two", "MCSVM_CS", [7, 3], np.hstack((w / 2, -w / 2)))
    data = write_problem(tmp_path / "x", rows)
    assert evaluation.evaluate(one, data, data, 1, 0.8, 0.2) == evaluation.evaluate(two, data, data, 1, 0.8, 0.2)


def test_scores_in_blocks_equal_a_matrix_product(tmp_path, monkeypatch):
    rng = np.random.default_rng(8)
    rows = random_rows(rng, 50, 12, [1, 2, 3])
    problem = evaluation.read_text(write_problem(tmp_path / "x", rows))
    X = np.zeros((50, 12))
    for i, (_, row) in enumerate(rows):
        X[i, [j - 1 for j in row]] = list(row.values())
    W = rng.normal(size=(12, 3))
    whole = evaluation.scores(problem, -1, W)
    np.testing.assert_allclose(whole, X @ W, atol=1e-12)
    monkeypatch.setattr(evaluation, "SCORE_BLOCK", 30)
    np.testing.assert_array_equal(evaluation.scores(problem, -1, W), whole)


@pytest.mark.parametrize("text", ["solver_type MCSVM_CS\n", None, "cut"])
def test_broken_models_are_refused(tmp_path, text):
    path = write_model(tmp_path / "m", "MCSVM_CS", [1, 2, 3], np.ones((4, 3)))
    if text == "cut":
        path.write_text(path.read_text()[:-8])
    elif text is None:
        path.write_text(path.read_text().replace("1.0", "x", 1))
    else:
        path.write_text(text)
    with pytest.raises(bench.BenchError):
        evaluation.read_model(path)


def test_unknown_training_labels_and_comments_are_errors(tmp_path):
    model = write_model(tmp_path / "m", "MCSVM_CS", [1, 2], np.ones((2, 2)))
    with pytest.raises(bench.BenchError, match="does not know"):
        evaluation.evaluate(model, write_problem(tmp_path / "x", [(4, {1: 1.0})]), None, 1, 0.8, 0.2)
    (tmp_path / "y").write_text("1 1:2\n\n1 1:3\n")
    with pytest.raises(bench.BenchError, match="blank lines"):
        evaluation.read_text(tmp_path / "y")


def test_scale01(tmp_path):
    rows = [(1, {1: -2.0, 2: 5.0, 3: 4.0}), (2, {1: 2.0, 2: 5.0}), (1, {2: 5.0})]
    train = write_problem(tmp_path / "a", rows)
    test = write_problem(tmp_path / "b", [(2, {1: 6.0, 3: 1.0, 4: 9.0})])
    evaluation.scale01(train, test, tmp_path / "a01", tmp_path / "b01")
    # Feature 1 spans -2..2, 2 is constant, 3 spans 0..4, 4 is not in the training part.
    assert (tmp_path / "a01").read_text() == "1 3:1\n2 1:1\n1 1:0.5\n"
    assert (tmp_path / "b01").read_text() == "2 1:2 3:0.25\n"



def slow_binary(rows, column, C, mu, theta):
    """l1svc, l2svc, ldm and odm of one column, given by a function of label and row: its norm's half, and y f."""
    half, margins = column(None)[0], [column(row)[1] for row in rows]
    mean = sum(margins) / len(margins)
    spread = sum((a - b) ** 2 for a in margins for b in margins) / len(margins) ** 2
    l1 = half + C * sum(max(0, 1 - g) for g in margins)
    odm = sum(max(0, 1 - theta - g) ** 2 + mu * max(0, g - 1 - theta) ** 2 for g in margins)
    ldm = l1 + evaluation.LAMBDA1 * spread - evaluation.LAMBDA2 * mean
    return {"l1svc": l1, "l2svc": half + C * sum(max(0, 1 - g) ** 2 for g in margins), "ldm": ldm,
            "odm": half + C / (1 - theta) ** 2 * odm}


@pytest.mark.parametrize("labels", [[3, 7], [5, 1, 9]])
def test_binary_objectives_are_the_formulas(tmp_path, labels):
    rng = np.random.default_rng(len(labels))
    rows = random_rows(rng, 30, 5, labels)
    columns = 1 if len(labels) == 2 else len(labels)
    W = rng.normal(size=(5, columns))
    model = write_model(tmp_path / "m", "L2R_L2LOSS_SVC_DUAL", labels, W)
    got = evaluation.evaluate(model, write_problem(tmp_path / "x", rows), None, 2.0, 0.7, 0.3)
    wanted = dict.fromkeys(("l1svc", "l2svc", "ldm", "odm"), 0.0)
    for c in range(columns):

        def column(row, c=c):
            if row is None:
                return 0.5 * sum(v * v for v in W[:, c]), None
            label, features = row
            score = sum(v * W[j - 1, c] for j, v in features.items())
            return None, score if label == labels[c] else -score

        for name, value in slow_binary(rows, column, 2.0, 0.7, 0.3).items():
            wanted[name] += value
    for name, value in wanted.items():
        assert got[name] == pytest.approx(value, rel=1e-12)


# bench: runs, with small fakes in place of the programs

FAKE = """#!{python}
import sys
from pathlib import Path
name, args = Path(sys.argv[0]).name, sys.argv[1:]
if "--help" in args:
    print("usage")
elif name.endswith("train"):
    if "-C" in args:
        sys.exit(print("Best C = 1  CV accuracy = 50%"))
    if args[args.index("-c") + 1] == "-1":
        sys.exit("ERROR: C <= 0")
    if "-t" in args:
        sys.exit(Path(args[-1]).write_text("svm_type c_svc\\ntotal_sv 3\\nSV\\n") and None)
    solver = args[args.index("-s") + 1]
    Path(args[-1]).write_text(Path("{folder}", "model-" + solver).read_text())
    if "--log" in args:
        Path(args[args.index("--log") + 1]).write_text('{{"n_iter": 7, "seconds": 0.5}}')
    if name == "margin-train":
        print("optimization finished, #iter = 9\\nObjective value = {objective}\\ncertificate = 0.0005")
else:
    data, model, out = args[-3:]
    Path(out).write_text("".join("1\\n" for line in open(data)))
    print("Accuracy = 50% (2/4)")
"""


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    rows = [(1, {1: 1.0}), (2, {2: 1.0}), (1, {1: 0.5}), (2, {1: 0.5})]
    data = tmp_path / "sets"
    data.mkdir()
    write_problem(data / "tiny.t", rows)
    (data / "tiny.xz").write_bytes(lzma.compress((data / "tiny.t").read_bytes()))
    W = [[1, 0], [0, 0.5]]
    write_model(folder / "model-mcodm", "MCSVM_CS", [1, 2], W)
    for solver in ("cs", "lpmcsvm"):
        write_model(folder / f"model-{solver}", "MCSVM_CS", [1, 2], W)
    for solver, scale in (("l2svc", 1.0), ("1", 0.9)):
        write_model(folder / f"model-{solver}", "L2R_L2LOSS_SVC_DUAL", [1, 2], [[scale], [-0.5]])
    write_model(folder / "model-4", "MCSVM_CS", [1, 2], [[0.9, 0], [0, 0.5]])
    objective = slow_objectives(rows, [1, 2], W, -1, 1.0, 0.8, 0.2)[1]
    for name in ("margin-train", "margin-predict", "liblinear-train", "liblinear-predict", "svm-train", "svm-predict"):
        text = FAKE.format(python=sys.executable, folder=folder, objective=f"{objective:.9g}")
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    common = ["--data", str(data), "--cache", str(tmp_path / "cache"), "--repeat", "1", "--json",
              str(tmp_path / "out.json"), "--ours", str(folder)]

    def call(*options):
        status = bench.main([*common, *options])
        # Only what was decompressed or scaled stays.
        assert not list((tmp_path / "cache").glob("run-*"))
        report = tmp_path / "out.json"
        return status, json.loads(report.read_text()) if report.exists() else None

    return call


def test_bench_train_reports_time_and_what_was_reached(fakes, capsys):
    status, report = fakes("train", "tiny", "-e", "0.01", "--peer-tol", "0.1", "--repeat", "2")
    assert status == 0
    (comparison,) = report["comparisons"]
    ours, peer = comparison["rows"]
    assert (ours["name"], peer["name"]) == ("marginlinear", "LIBLINEAR")
    assert ours["certificate"] == 0.0005 and ours["accuracy"] == peer["accuracy"] == 0.75
    assert peer["cs"] != ours["cs"]
    assert len(ours["rounds"]) == 2 and all(r["seconds"] > 0 and r["cpu"] > 0 for r in ours["rounds"])
    assert ours["peak"] > 1e6
    assert "-s mcodm -c 1 -e 0.01" in ours["command"] and "-s 4 -c 1 -e 0.1" in peer["command"]
    (ratio,) = comparison["ratios"]
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert not [note for note in comparison["notes"] if "WARNING" in note]
    out = capsys.readouterr().out
    assert "| marginlinear |" in out and "time, marginlinear / LIBLINEAR" in out
    assert "argv" in report and report["machine"] and report["versions"]["numpy"]


def test_bench_warns_when_the_objective_is_not_what_margin_train_says(fakes):
    _, report = fakes("train", "tiny", "-c", "2")
    assert "WARNING: margin-train says objective" in report["comparisons"][0]["notes"][0]


def test_bench_compares_a_binary_method_in_its_own_objective(fakes):
    status, report = fakes("train", "tiny", "-s", "l2svc")
    assert status == 0
    (comparison,) = report["comparisons"]
    ours, peer = comparison["rows"]
    assert "-s l2svc" in ours["command"] and "-s 1" in peer["command"]
    assert ours["l2svc"] != peer["l2svc"] and "cs" not in ours
    assert comparison["ratios"][1]["label"] == "objective, marginlinear / LIBLINEAR"


def test_bench_kernel_stands_beside_libsvm(fakes):
    status, report = fakes("kernel", "tiny", "-s", "l1svc", "-g", "0.5", "-c", "2")
    assert status == 0
    ours, peer = report["comparisons"][0]["rows"]
    assert "-s l1svc -t 2 -g 0.5 -c 2" in ours["command"] and "svm-train" in peer["command"]
    assert ours["support"] == peer["support"] == 3 and ours["accuracy"] == peer["accuracy"] == 0.5
    assert report["comparisons"][0]["ratios"][0]["label"] == "time, marginlinear / LIBSVM"


@pytest.mark.parametrize("solver", ["l1svr", "oneclass"])
def test_bench_machines_over_a_kernel_solve_what_their_peer_does(solver, tmp_path):
    pytest.importorskip("sklearn")
    rng, source, drawn = np.random.default_rng(0), tmp_path / "source", tmp_path / "drawn"
    rows = [(int(label), dict(enumerate(map(float, x), 1)))
            for label, x in zip(rng.choice([-1, 1], 90), rng.normal(3, 2, (90, 4)), strict=True)]
    write_problem(source, rows)
    evaluation.draw(str(source), str(drawn), 80, True, False, solver)
    own, machine, theirs, _ = bench.MACHINES[solver]
    ours = children.child_svc("ours", str(drawn), solver, {"gamma": 0.3, **own}, 1e-6)
    peer = children.child_svc("sklearn", str(drawn), machine, {"gamma": 0.3, **theirs}, None)
    # Duals at their bound's edge may be on either side.
    assert abs(ours["support"] - peer["support"]) <= 3 and 0 < ours["support"] < 80


def test_bench_packages_minimise_what_l1lr_does(tmp_path):
    pytest.importorskip("celer")
    rng, source, weights = np.random.default_rng(0), tmp_path / "source", tmp_path / "weights.npy"
    rows = [(int(label), dict(enumerate(map(float, x), 1)))
            for label, x in zip(rng.choice([-1, 1], 200), rng.standard_normal((200, 5)), strict=True)]
    write_problem(source, rows)
    ours = children.child_solver("ours", str(source), "l1lr", None, 0.5, 1e-6, os.devnull)
    children.child_solver("celer", str(source), "l1lr", None, 0.5, 1e-6, str(weights))
    reached = children.child_objective(str(source), "l1lr", 0.5, str(weights))
    assert reached == pytest.approx(ours["objective"], rel=1e-4)


def test_bench_fit_stands_beside_liblinear(fakes):
    status, report = fakes("fit", "tiny", "-s", "cs", "--options=-c 1 --seed 4")
    assert status == 0
    ours, peer = report["comparisons"][0]["rows"]
    assert "-s cs -c 1 --seed 4" in ours["command"] and "-s 4 -c 1" in peer["command"]
    assert ours["accuracy"] == peer["accuracy"] == 0.5


def test_bench_norms_and_pass_have_their_goals(fakes, monkeypatch):
    smooth = pytest.importorskip("marginlinear._core.smooth")
    monkeypatch.setenv("PYTHONPATH", str(Path(smooth.__file__).parent.parent.parent))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")

    def suite(self):
        return [("norms", lambda: self.norms_case("tiny", 1.5, 1e-3, 1e9)),
                ("pass", lambda: self.pass_case("tiny", 1e9))]

    monkeypatch.setattr(bench.Bench, "suite", suite)
    status, report = fakes("--suite", "papers", "--strict")
    norms, one_pass = report["comparisons"]
    assert status == 0
    assert "-s lpmcsvm -p 1.5" in norms["rows"][0]["command"] and "-s cs" in norms["rows"][1]["command"]
    assert [c["ratios"][0]["label"] for c in (norms, one_pass)] == ["time, lpmcsvm / cs", "time, marginlinear / SciPy"]
    assert one_pass["ratios"][0]["value"] > 0


def test_bench_search_counts_sweeps(fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(Path(pytest.importorskip("marginlinear").__file__).parent.parent))
    rng = np.random.default_rng(0)
    write_problem(tmp_path / "sets" / "small", [(i % 2, dict(enumerate((rng.standard_normal(3) + i % 2).tolist(), 1)))
                                                for i in range(40)])
    status, report = fakes("search", "small", "-s", "l2svc")
    assert status == 0
    ours, peers = report["comparisons"]
    sweeps, _ = ours["ratios"]
    warm, cold = ours["rows"]
    assert sweeps["label"] == "sweeps, warm / cold"
    assert sweeps["value"] == warm["iterations"] / cold["iterations"] > 0
    assert warm["unconverged"] == cold["unconverged"] == 0
    assert "-C -s l2svc" in peers["rows"][0]["command"] and "-C -s 2" in peers["rows"][1]["command"]
    assert peers["ratios"][0]["label"] == "time, marginlinear / LIBLINEAR"


def test_the_fifth_and_the_rest_are_the_file(tmp_path):
    lines = [f"{i % 3} 1:{i}\n" for i in range(23)]
    source, train, test = (tmp_path / name for name in ("all", "most", "fifth"))
    source.write_text("".join(lines))
    evaluation.leave_fifth(source, train, test)
    parts = [path.read_text().splitlines(keepends=True) for path in (train, test)]
    assert [len(part) for part in parts] == [19, 4]
    assert sorted(parts[0] + parts[1]) == sorted(lines)
    assert all(part == [line for line in lines if line in part] for part in parts)


def test_bench_predict_and_help(fakes, capsys):
    status, report = fakes("predict", "tiny")
    assert status == 0
    assert "0 of 4 predicted labels differ." in report["comparisons"][0]["notes"]
    assert report["comparisons"][0]["rows"][0]["accuracy"] == 0.5
    status, report = fakes("help")
    assert report["comparisons"][0]["ratios"][0]["label"] == "user time of --help, s"


def test_bench_write_compares_the_weights_in_the_files(fakes, tmp_path):
    W = np.array([[0.1, 0.2], [1 / 3, -1e-30]])
    first = write_model(tmp_path / "first", "MCSVM_CS", [1, 2], W)
    second = write_model(tmp_path / "second", "MCSVM_CS", [1, 2], W, trailer="marginlinear 1\n{}\n")
    assert children.child_same_weights(first, second)
    assert not children.child_same_weights(first, write_model(tmp_path / "third", "MCSVM_CS", [1, 2], 2 * W))
    status, report = fakes("write", "tiny")
    assert status == 0
    # Whoever is not there is named.
    named = [row["name"] for row in report["comparisons"][0]["rows"]]
    named += [skipped["what"].removeprefix("write tiny, ") for skipped in report["skipped"]]
    assert sorted(named) == ["LIBLINEAR", "marginlinear"]


def test_bench_names_what_is_missing(fakes, capsys):
    status, _ = fakes("train", "tiny", "--liblinear-train", "no-such-program")
    assert status == 0
    assert "- train tiny, mcodm, -c 1, LIBLINEAR: missing: apt-get install liblinear-tools" in capsys.readouterr().out
    status, _ = fakes("train", "no-such-set", "--strict")
    assert status == 1
    assert "set no-such-set is missing: looked for no-such-set, no-such-set.xz" in capsys.readouterr().out


def test_bench_read_measures_our_reader(fakes, monkeypatch, capsys):
    libsvm = pytest.importorskip("marginlinear.libsvm")
    # The children must find the package that these tests run against, installed or not.
    monkeypatch.setenv("PYTHONPATH", str(Path(libsvm.__file__).parents[2]))
    _, report = fakes("read", "tiny")
    rows = {row["name"]: row for row in report["comparisons"][0]["rows"]}
    assert rows["marginlinear, 1 thread"]["arrays"] == rows["marginlinear, 2 threads"]["arrays"] > 0
    ratios = {ratio["label"]: ratio["value"] for ratio in report["comparisons"][0]["ratios"]}
    assert ratios["rate, 2 threads / 1 thread"] > 0
    # Four rows are read too fast to be told from the start of the program.
    out = capsys.readouterr().out
    assert "| LIBLINEAR, C program |" in out or "takes no longer than its start-up" in out


def test_bench_suite_has_a_goal_for_every_line_of_the_issue(fakes, capsys):
    status, _ = fakes("--suite", "joint", "--only", "^(help|train imdb mcodm -e 0.01)$", "--strict")
    assert status == 1
    out = capsys.readouterr().out
    assert "## Goals" in out and "at most 0.1" in out
    assert "SKIPPED train imdb mcodm -e 0.01: set imdb is missing" in out
    assert bench.main(["--suite", "joint", "--only", "nothing", "--cache", "/tmp", "--peers-only"]) == 1
    assert "train sector cs -e matched" in capsys.readouterr().err


def test_bench_matches_the_objective_of_cs(fakes, monkeypatch):
    def suite(self):
        return [("cs", lambda: self.train_case("tiny", "cs", 1, None, 0.1, False, 0.9, 0.5))]

    monkeypatch.setattr(bench.Bench, "suite", suite)
    _, report = fakes("--suite", "joint")
    (comparison,) = report["comparisons"]
    assert comparison["notes"][0].startswith("-e 0.1 is the loosest")
    assert comparison["ratios"][1]["met"] is True and comparison["ratios"][1]["goal"] == 1.5


def test_bench_without_marginlinear_says_how_to_get_it(tmp_path, capsys):
    assert bench.main(["help", "--ours", str(tmp_path), "--cache", str(tmp_path / "c")]) == 1
    assert "pip install" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["train"], ["help", "--suite", "joint"], ["help", "--repeat", "0"],
                                     ["--scaling", "--suite", "speed"], ["--scaling", "--roofline"],
                                     ["--suite", "joint", "--write", "x.md"]])
def test_bench_usage(options, capsys):
    with pytest.raises(SystemExit) as error:
        bench.main(options)
    assert error.value.code == 2


def test_run_measures_a_process_and_stops_it_in_time():
    work = "import time; b = bytearray(b'x') * 80_000_000; t = time.process_time()\n" \
           "while time.process_time() - t < 0.2: pass"
    got = bench.run([sys.executable, "-c", work], 20)
    assert got["status"] == 0 and 0.2 <= got["cpu"] < 2 and got["seconds"] >= 0.19
    assert 80e6 < got["peak"] < 160e6 and got["floor"] < 40e6
    got = bench.run([sys.executable, "-c", "import sys; print(1); sys.exit(3)"], 20)
    assert (got["status"], got["stdout"]) == (3, "1\n")
    with pytest.raises(bench.Skip, match=r"stopped after 0\.2 s"):
        bench.checked(["sleep", "20"], 0.2)
    with pytest.raises(bench.Skip, match="exit status 3"):
        bench.checked([sys.executable, "-c", "import sys; sys.exit(3)"], 20)


def test_bench_interrupted_leaves_no_process_behind(fakes, tmp_path):
    pid = tmp_path / "pid"
    slow = tmp_path / "bin" / "margin-train"
    slow.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 60\n")
    process = subprocess.Popen([sys.executable, TOOLS / "bench.py", "help", "--ours", slow.parent,
                                "--cache", tmp_path / "cache"])
    until(pid.exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130

    def gone():
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid.read_text().strip()}/stat").read_text().split()[2] == "Z"

    until(gone)


# bench: the page of ratios


def run_of(seconds, peak=1e6):
    return {"seconds": seconds, "cpu": seconds, "user": seconds, "peak": peak, "floor": None}


def test_what_takes_long_is_not_repeated():
    calls = []

    def contestant(name, seconds):
        return lambda: calls.append(name) or run_of(seconds)

    sides = {"long": contestant("long", 9.0), "short": contestant("short", 1.0), "known": contestant("known", 9.0)}
    results, failed = measure.interleave(sides, 3, lambda _: None, long=5, earlier={"known": run_of(8.0),
                                                                                    "short": run_of(2.0)})
    assert not failed and calls == ["long", "short", "short", "short"]
    assert [r["seconds"] for r in results["known"]] == [8.0]
    comparison = measure.Comparison("x")
    comparison.ratio("time", results["short"], results["long"], "at most", 0.5)
    assert comparison.ratios[0]["value"] == comparison.ratios[0]["low"] == 1 / 9
    assert [ratio["met"] for ratio in comparison.ratios] == [True]


def test_every_comparison_of_the_speed_suite_has_its_line_and_its_name():
    names = [name for name, _ in speed.cases(None)]
    assert len(names) == len(set(names)) > 50
    for training in speed.trainings():
        assert len({children.PEERS[method][0] for method in training.methods}) == 1
    lines = {line for line, row in speed.LINES.items() if row.goals != (None, None)}
    # Memory is measured where one of the training lines is.
    memory = {line for line in speed.LINES if line.startswith("memory")}
    assert {training.memory for training in speed.trainings()} < {"", *memory}
    # Those of Python's packages stand beside l1lr's.
    beside = {*memory, "packages"}
    assert {name.split()[0] for name in names} == set(speed.LINES) - beside > lines - beside
    assert [t.tolerance(m) for t in speed.trainings() for m in t.methods if t.line == "hard"] == [1e-3] * 12
    text = speed.Training("binary", "x", ("l1svc", "ldm"))
    assert [text.tolerance(method) for method in ("l1svc", "ldm", "mcodm")] == [None, 1e-3, 1e-2]


def comparison_of(ratio, goal=0.5, line="ovr", data="sector"):
    made = measure.Comparison(f"{data}, C = 1")
    made.add("LIBLINEAR", "/usr/bin/liblinear-train -s 1 /data/sector /tmp/m", [run_of(2.0), run_of(2.2)])
    made.add("l2svc, 1 thread", "/x/margin-train -s l2svc /data/sector /tmp/m", [run_of(1.0)], above=1.0005)
    made.value("time", ratio, "at most", goal, ratio, ratio,
               place={"line": line, "data": data, "method": "l2svc", "C": 1, "threads": 1})
    made.value("not of the table", 1.0)
    return made


ABOUT = {"machine": "M", "load": [0.5], "versions": {"numpy": "2"}, "peer_versions": {"scikit-learn": None},
         "liblinear_tools": "2.3", "commit": "abc", "argv": ["--suite", "speed"], "repeat": 5}


def test_the_page_keeps_what_was_not_measured_again(tmp_path):
    path = tmp_path / "b.md"
    order = ["a", "b", "c"]

    def write(date, **comparisons):
        for name, comparison in comparisons.items():
            comparison.name = name
        page.update(path, ABOUT | {"date": date}, comparisons.values(), order)
        return json.loads(path.with_suffix(".json").read_text()), path.read_text()

    write("day 1", a=comparison_of(0.4567), b=comparison_of(0.7, line="read", data="imdb"), gone=comparison_of(9))
    record, text = write("day 2", a=comparison_of(0.3))
    assert list(record["comparisons"]) == ["a", "b"] and record["missing"] == ["c"]
    assert [record["comparisons"][name]["date"] for name in "ab"] == ["day 2", "day 1"]
    assert "| sector | l2svc | 1 | 0.3 | met |  |  | 2 |" in text
    assert "| imdb | l2svc | 1 | 0.7 | **missed** |  |  | 1 |" in text
    assert "- Run 1: day 1" in text and "- Run 2: day 2" in text and "## Not measured yet\n\n- c\n" in text
    assert "| `liblinear-train -s 1 sector` | 2.1 | 2..2.2 | 2.1 | 1 |" in text
    assert "| `margin-train -s l2svc sector` | 1 | one round | 1 | 1 |  | 1.00050 |" in text
    record, text = write("day 3", b=comparison_of(0.1), a=comparison_of(0.2), c=comparison_of(0.3))
    assert list(record["runs"]) == ["day 3"] and not record["missing"] and "Not measured" not in text


def test_the_summary_counts_what_was_met(tmp_path):
    record = {"runs": {}, "comparisons": {}}
    new = {name: page.compact(comparison_of(ratio, data=name), "day", 0.1) for name, ratio in (("a", 0.3), ("b", 0.6))}
    rows = page.goal_rows(page.merged(record, ABOUT | {"date": "day"}, new, ["a", "b"]))
    assert "| Text, one against the rest: l2svc | 0.5 | 0.3 to 0.6 | **1 of 2** | 0.28 |  |  |" in page.summary(rows)


def test_a_page_of_everything_stays_small():
    """The whole suite with five rounds, every comparison with seven contestants' worth of rows."""
    names = [name for name, _ in speed.cases(None)]
    new = {name: page.compact(comparison_of(0.3, data=name), "day", 0.1) for name in names}
    for comparison in new.values():
        comparison["rows"] *= 2
        comparison["ratios"] *= 2
    record = page.merged({"runs": {}, "comparisons": {}}, ABOUT | {"date": "day"}, new, names)
    assert len(page.rendered(record)) < 60_000


def test_bench_speed_finds_the_tolerance_and_writes_the_page(fakes, monkeypatch, tmp_path):
    # The fake's objective is that of its mcodm model, so that is what it can be asked for.
    tiny = speed.Training("joint", "tiny", ("mcodm",), memory="memory")
    monkeypatch.setattr(speed, "cases", lambda bench: [("tiny", lambda: speed.train(bench, tiny)),
                                                       ("predict", lambda: speed.predict(bench, "tiny", "mcodm"))])
    path = tmp_path / "page.md"
    status, report = fakes("--suite", "speed", "--write", str(path))
    assert status == 0
    training, predicting = report["comparisons"]
    assert [row["name"] for row in training["rows"]] == ["LIBLINEAR", "mcodm, 1 thread", "mcodm, 2 threads",
                                                         "mcodm, 1 thread, --float32"]
    assert "-e 0.01 --threads 2" in training["rows"][2]["command"] and "--float32" in training["rows"][3]["command"]
    places = [(ratio["place"]["line"], ratio["place"]["threads"]) for ratio in training["ratios"]]
    assert places == [("joint", 1), ("joint", 2), ("memory", 1), ("memory", 2), ("memory32", 1)]
    assert training["notes"] == ["WARNING: mcodm did not converge"]
    assert predicting["rows"][0]["name"] == "LIBLINEAR" and len(predicting["ratios"]) == 2
    assert "Peak memory" in path.read_text() and path.with_suffix(".json").exists()


def test_the_loosest_tolerance_that_is_as_good(monkeypatch, tmp_path):
    class Fake:
        limit, scratch = 1, tmp_path

        def our_train_command(self, method, C, tol, *rest):
            return [method, str(tol)]

        def progress(self, text):
            pass

        def all_reached(self, models, *rest):
            # LIBLINEAR's model is evaluated once, with the first of ours.
            return [{"l1svc": 100.0, "ldm": 100.0} if path == "peer" else {"l1svc": 100.3, "ldm": 99.0}
                    for path in models]

    said = {"0.1": 100.3, "0.05": 100.2, "0.02": 100.05, "0.001": 99.0}
    monkeypatch.setattr(speed, "checked", lambda command, limit: {"stdout": f"Objective value = {said[command[1]]}"})
    found = speed.loosest(Fake(), speed.Training("binary", "x", ("l1svc", "ldm")), "x", "peer")
    assert [found[method][0] for method in ("l1svc", "ldm")] == [0.02, 1e-3]
    assert found["ldm"][2] == [{"l1svc": 100.3, "ldm": 99.0}, {"l1svc": 100.0, "ldm": 100.0}]


def test_synthetic_sets_are_made_where_they_are_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(bench.SYNTHETIC, "rcv1-shape", ["--rows", "3", "--features", "9", "--nonzeros", "2"])
    args = bench.parser().parse_args(["read", "rcv1-shape", "--peers-only", "--cache", str(tmp_path)])
    made = bench.Bench(args)
    try:
        assert made.file("rcv1-shape").read_text().count("\n") == 3
    finally:
        made.close()


# bench: how cost grows


def test_exponents_are_slopes_in_logarithms():
    xs = (1, 2, 4, 8, 16)
    assert scaling.exponent(xs, [3 * x**1.5 for x in xs]) == pytest.approx((1.5, 1.5, 1.5))
    b, low, high = scaling.exponent(xs, [1, 2, 4, 8, 32])
    assert low == pytest.approx(1.0) and low < b < high
    # What is not more than the start-up has no logarithm.
    assert scaling.exponent(xs, [0, -1, 4, 8, 16]) == pytest.approx((1, 1, 1))
    assert scaling.exponent(xs, [0, 0, 0, 8, 16]) is None


def test_gather_rates_are_interpolated_and_end_where_they_were_measured():
    rates = {"gather": [[1, 1.0], [4, 3.0], [16, 4.0]]}
    assert [scaling.gathered(rates, size) for size in (0.5, 2, 8, 99)] == pytest.approx([1.0, 2.0, 3.5, 4.0])


def scaling_record():
    rates = {"copy": 12e9, "gather": [[2**17, 1.0], [2**27, 9.0]]}
    points = []
    for axis in scaling.AXES:
        for classes, methods in axis.groups:
            peers = [] if axis.name == "threads" else dict.fromkeys(map(scaling.peer_name, methods))
            for x in axis.points:
                points += [{"axis": axis.name, "x": x, "classes": classes or x, "contestant": name, "nonzeros": 1000,
                            "seconds": 0.1 + x / 100, "peak": 1e7 + 100.0 * x, "sweeps": 10, "training": x * 1e-5}
                           for name in (*peers, *methods)]
    startup = {p["contestant"]: {"seconds": 0.1, "peak": 1e7} for p in points}
    return {"about": ABOUT | {"date": "day"}, "rates": rates, "startup": startup, "points": points}


def test_the_page_of_costs_has_exponents_times_and_rates():
    text = scaling.rendered(scaling_record(), "cost.svg")
    assert text.count("1.00 (1.00..1.00)") == 2 * (8 * 3 + 5)
    # 1e-5 s a feature over 10 sweeps of 1,000 nonzeros, in the joint methods for each of ten classes.
    assert "| 3,000 | 0.024 MB | 3000.00 | 3000.00 | 1.00 | 0.24 MB | 300.00 | 300.00 |" in text
    assert "come in 1.00 ns" in text and "![" in text and "| 8 | 0.18 s, 10 MB, 0.61x |" in text
    assert json.loads(scaling.dumped(scaling_record()))["points"] == scaling_record()["points"]


def test_the_picture_of_costs_is_the_same_each_time_and_small(tmp_path):
    pytest.importorskip("matplotlib")
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    scaling.draw(scaling_record(), first)
    scaling.draw(scaling_record(), second)
    assert first.read_bytes() == second.read_bytes() and first.stat().st_size < 150_000


def roofline_record():
    rows = [roofline.Row("imdb", "l2svc", C, "cd", 1000, [4, 5 * C], [1e-5, 2e-5 * C], 2.0, [3, None])
            for C in (1, 100)]
    return {"about": ABOUT | {"date": "day"}, "rows": [row._asdict() for row in rows]}


def test_the_roofline_counts_in_products_and_stays_on_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    # 2e-5 s for 5 sweeps of 1,000 values: 4 ns each, 2 of a product.
    text = roofline.section(roofline_record(), "")
    assert "| imdb | `l2svc` | 1 | cd | 2.00 | 4.00 | 2.0 | 4 | 5 | 3 |  | 10 |" in text
    page = tmp_path / "cost.md"
    scaling.write(page, scaling_record())
    scaling.write(page, {"roofline": roofline_record()})
    assert "## How far to the limit" in page.read_text("utf-8") and "## Exponents" in page.read_text("utf-8")
    scaling.write(page, scaling_record())
    assert "| imdb | `l2svc` | 100 |" in page.read_text("utf-8")
    roofline.draw(roofline_record(), tmp_path / "1.svg")
    roofline.draw(roofline_record(), tmp_path / "2.svg")
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


@pytest.mark.parametrize("keys", [("seconds",), ("peak",), ("seconds", "peak")])
def test_a_picture_where_nothing_takes_longer_than_the_start_up(keys, tmp_path):
    pytest.importorskip("matplotlib")
    record = scaling_record()
    for point in record["points"]:
        for key in keys:
            point[key] = record["startup"][point["contestant"]][key]
    scaling.draw(record, tmp_path / "cost.svg")
    assert "less the start-up" in (tmp_path / "cost.svg").read_text("utf-8")


def test_scaling_measures_with_the_programs(fakes, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    axis = scaling.Axis("rows", "rows", (4, 8, 16), ((2, ("l2svc",)),), {"rows": 4, "features": 9, "nonzeros": 2})
    monkeypatch.setattr(scaling, "AXES", (axis,))
    monkeypatch.setattr(scaling, "BINARY", ("l2svc",))
    monkeypatch.setattr(scaling, "JOINT", ("mcodm",))
    monkeypatch.setattr(scaling, "in_child", lambda *args: {"copy": 1e9, "gather": [[1, 1.0], [2, 1.0]]})
    path = tmp_path / "cost.md"
    status, _ = fakes("--scaling", "--write", str(path))
    assert status == 0
    assert "| 8 | " in path.read_text() and path.with_suffix(".svg").exists()
    points = json.loads(path.with_suffix(".json").read_text())["points"]
    assert [(p["x"], p["contestant"], p["sweeps"]) for p in points if p["x"] == 8] == [
        (8, "LIBLINEAR -s 1", None), (8, "l2svc", 7)]


def test_rates_of_this_machine():
    pytest.importorskip("scipy")
    got = children.child_rates([2**12, 2**14], 0.001)
    assert got["copy"] > 1e7 and [size for size, _ in got["gather"]] == [2**12, 2**14]
    assert all(ns > 0 for _, ns in got["gather"])


def test_what_is_kept_names_no_folder_of_one_machine():
    text = '["--data", "/tmp/data", "/opt/x/bin/margin-train -c 1/2 /home/me/a b/c"] `/tmp/m.model` 1/2 ||w||, ms/MB'
    assert text_part.portable(text) == '["--data", "data", "margin-train -c 1/2 a b/c"] `m.model` 1/2 ||w||, ms/MB'


def test_parts_of_the_study_taken_together(tmp_path, monkeypatch):
    """Means over the certified splits of a set, the methods of both parts, and SciPy's p for the same differences."""
    from scipy.stats import wilcoxon

    from tools import pooled

    def write(name, *parts):
        monkeypatch.setattr(sys, "argv", ["pooled", *parts, "--study", str(tmp_path), "--write", str(tmp_path / name)])
        pooled.main()

    rng = np.random.default_rng(0)
    means = {method: rng.uniform(0.7, 0.9, 9) for method in ("l2svc", "odm", "ldm")}
    for part, sets, methods in (("one", range(5), ("l2svc", "mamc", "odm", "ldm")), ("two", range(5, 9), means)):
        lines = ["set,method,split,certified,accuracy,log_loss"]
        for at in sets:
            for method in methods:
                mean = means.get(method, means["odm"])[at]
                lines += [f"s{at},{method},{split},True,{mean + off},{2 - mean}"
                          for split, off in enumerate((-0.05, 0.05))]
                lines.append(f"s{at},{method},2,False,0,9")
        (tmp_path / f"{part}.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    write("all.md", "one", "two")
    text = (tmp_path / "all.md").read_text("utf-8")
    assert "mamc" not in text and text.count("\n9 sets; Friedman's F") == 2
    for title, less in (("Accuracy", means["odm"] - means["l2svc"]),
                        ("Log loss", (means["l2svc"] - means["odm"]) / (2 - means["l2svc"]))):
        row = re.search(r"^\| odm \|.*$", text.split(f"## {title}")[1], re.MULTILINE)[0].split("|")
        gains = less if title == "Accuracy" else -less
        assert float(row[4]) == pytest.approx(less.mean(), abs=1e-4)
        assert row[5].split() == [f"{(gains > 0).sum()},", "0,", f"{(gains < 0).sum()}"]
        assert float(row[6]) == pytest.approx(wilcoxon(less, method="exact").pvalue, rel=0.01)
    # A reference without an error leaves its set out.
    perfect = [f"s9,{method},0,True,1,{error}" for method, error in (("l2svc", 0), ("odm", 0.5), ("ldm", 0))]
    (tmp_path / "three.csv.xz").write_bytes(lzma.compress("\n".join([lines[0], *perfect]).encode()))
    write("more.md", "one", "two", "three")
    assert re.findall(r"^\d+ sets", (tmp_path / "more.md").read_text("utf-8"), re.MULTILINE) == ["10 sets", "9 sets"]
    write("one.md", "three")
    assert (tmp_path / "one.md").read_text("utf-8").startswith("# The sets of three\n")
    for parts, words in ((["none"], "none is not in"), (["one", "two", "one"], "s0, s1, s2, s3, s4")):
        with pytest.raises(SystemExit, match=words):
            write("none.md", *parts)
    assert not (tmp_path / "none.md").exists()


def test_methods_are_compared_on_the_splits_that_they_share(tmp_path):
    """On the hard split the fit of odm has no certificate: it is no better on the others. Means of l2svc and ldm differ
    by their last bits alone."""
    from tools import claims, defaults, pooled

    lines = ["set,method,split,certified,accuracy,log_loss"]
    scores = {"l2svc": (0.2, 0.3, 0.7), "odm": (0.2, 0.3, 0.7), "ldm": (0.4, 0.4, 0.4)}
    assert sum(scores["l2svc"]) != sum(scores["ldm"])
    for at in range(6):
        for method, of in scores.items():
            lines += [f"s{at},{method},{split},{method != 'odm' or split > 0},{score},{1 + at - score}"
                      for split, score in enumerate(of)]
    (tmp_path / "unseen.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    found, _ = defaults.scores_of(tmp_path, ["unseen"])
    assert defaults.shared_means(found, ["l2svc", "ldm"])["s3"] == [0.4, 0.4]
    assert defaults.shared_means(found, ["l2svc", "odm", "ldm"])["s3"] == [0.5, 0.5, 0.4]
    for metric in ("accuracy", "log_loss"):
        assert claims.differences_of(tmp_path, claims.Claim("unseen", metric, "odm", 1)).tolist() == [0] * 6
        assert "\n".join(pooled.pooled(tmp_path, ["unseen"], metric)).count(" | +0.0000 | 0, 6, 0 | 1 | 1 |") == 2
    told = "\n".join(defaults.answered(tmp_path, "odm", defaults.Question(("unseen",), "l2svc", ("unseen",))))
    assert "| odm | 1.500 | 0.5000 | +0.0000 | 0, 6, 0 | 1 |" in told
    assert "| ldm | 3.000 | 0.4000 | +0.0000 | 0, 6, 0 | 1 |" in told
    assert "l2svc less the same method tuned: +0.0000 in the mean of 6 sets, p = 1 by" in told


def test_claims_are_tested_by_the_sign_that_they_have(tmp_path, monkeypatch):
    from scipy.stats import wilcoxon

    from tools import claims

    rng = np.random.default_rng(0)
    parts, made = {}, [*claims.KEEL, *claims.R]
    for claim in made:
        parts.setdefault(claim.part, {})[claim.metric] = None
    means = {}
    for part, metrics in parts.items():
        lines = [",".join(["set,method,split,certified", *metrics])]
        for at in range(9):
            for method in ("l2svc", *{claim.method for claim in made if claim.part == part}):
                values = [0.0 if at == 8 and metric == "aurc" else rng.uniform(0.1, 0.9) + at * (method == "rmm")
                          for metric in metrics]
                means |= {(part, metric, at, method): value for metric, value in zip(metrics, values, strict=True)}
                lines.append(",".join([f"s{at}", method, "0", "True", *map(repr, values)]))
        (tmp_path / f"{part}.csv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "argv", ["claims", "--study", str(tmp_path), "--write", str(tmp_path / "found.md")])
    claims.main()
    rows = re.findall(r"^\| unseen.*$", (tmp_path / "found.md").read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len(made)
    for claim, row in zip(made, rows, strict=True):
        of = {method: np.array([means[claim.part, claim.metric, at, method] for at in range(9)])
              for method in (claim.method, claim.reference)}
        ours, theirs = of[claim.method], of[claim.reference]
        if claim.metric in ("log_loss", "brier", "aurc"):
            ours, theirs = ours[theirs > 0] / theirs[theirs > 0], np.ones(np.count_nonzero(theirs))
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[3] == str(len(ours)) and float(cells[4]) == pytest.approx((ours - theirs).mean(), abs=1e-4)
        if claim.sign:
            p = wilcoxon(ours - theirs, method="exact").pvalue
            assert float(cells[6]) == pytest.approx(p, rel=0.01)
            right = (ours - theirs).mean() * claim.sign > 0
            assert cells[8] == ("does not" if not right else "holds" if p < 0.05 else "not told apart")


def test_words_of_keels_tables_are_features():
    from tools import keel

    X, y = keel.rows_of("1.5, f, b, yes\n2, m, a, no\n<null>, m, a, no\n-3, f, c, no\n")
    assert y.tolist() == ["yes", "no", "no"]
    assert X.tolist() == [[1.5, 0, 0, 1, 0], [2, 1, 1, 0, 0], [-3, 0, 0, 0, 1]]


def test_objects_of_r_are_unpacked():
    from tools import rtables

    data = b"an object" * 100
    for block in (zlib.compress(data), b"2" + bz2.compress(data),
                  b"Z" + lzma.compress(data, lzma.FORMAT_RAW, filters=rtables.RAW_LZMA)):
        assert rtables.unpacked(len(data).to_bytes(4, "big") + block) == data
