"""What a build compiles, and what it says where it cannot: setup.py over a tiny package, with a pretended compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
Cython = pytest.importorskip("Cython")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the pretended compiler is a shell script")

# It makes the file after -o, and fails with what a probe includes that is named in MISSING.
COMPILER = """\
#!/bin/sh
for word; do case $word in *probe.c) test -n "$MISSING" && grep -q "$MISSING" "$word" && exit 1;; esac; done
while [ $# -gt 0 ]; do test "$1" = -o && echo made > "$2"; shift; done
exit 0
"""
SOURCES = {
    "tiny.pxd": "cdef inline int two() noexcept:\n    return 2\n",
    "tiny.h": "#define THREE 3\n",
    "tiny.pyx": "from libc.stdint cimport int32_t\n\ncdef extern from 'tiny.h':\n    int THREE\n\n\n"
                "def five():\n    return <int32_t> two() + THREE\n",
}


@pytest.fixture
def build(tmp_path):
    """A function that builds the tiny package with variables in the environment: (status, compiled or not, stderr)."""
    core = tmp_path / "marginlinear" / "_core"
    core.mkdir(parents=True)
    for name, text in SOURCES.items():
        (core / name).write_text(text)
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "cc").write_text(COMPILER)
    (tmp_path / "cc").chmod(0o755)

    def run(**variables):
        done = subprocess.run([sys.executable, "setup.py", "build_ext"], cwd=tmp_path, capture_output=True, text=True,
                              env={**os.environ, "CC": str(tmp_path / "cc"), "LDSHARED": "./cc", **variables})
        return done.returncode, "Cythonizing" in done.stdout, done.stderr

    return run


def test_content_decides_what_is_compiled(build, tmp_path):
    """Times of files do not, nor does the new copy of Cython that pip's isolated environment brings."""
    core = tmp_path / "marginlinear" / "_core"
    assert build()[:2] == (0, True)
    fresh = shutil.copytree(Path(Cython.__file__).parent, tmp_path / "new" / "Cython")
    for path in [*(core / name for name in SOURCES), tmp_path / "setup.py", *fresh.rglob("*.pxd")]:
        os.utime(path, (2e9, 2e9))
    assert build(PYTHONPATH=str(tmp_path / "new"))[:2] == (0, False)
    for name in ("tiny.pxd", "tiny.h"):
        (core / name).write_text(SOURCES[name] + "\n")
        os.utime(core / name, (1e9, 1e9))
        assert build()[:2] == (0, True), name
    for variables in ({"MARGINLINEAR_BOUNDS": "1"}, {"CFLAGS": "-g"}):
        assert build(**variables)[:2] == (0, True), variables
    assert [*tmp_path.glob("build/lib*/marginlinear/_core/_shared*")]
    made, = tmp_path.glob("build/lib*/marginlinear/_core/tiny*")
    made.write_text("made by another build")
    assert build(CFLAGS="-g")[:2] == (0, True)


@pytest.mark.parametrize("variables, word", [
    ({"CC": "/none"}, "There is no working C compiler."), ({"MISSING": "stdlib"}, "There is no working C compiler."),
    ({"MISSING": "Python.h"}, "The C compiler does not find Python.h."),
])
def test_what_is_missing_is_the_last_line(build, variables, word):
    status, compiled, err = build(**variables)
    assert (status, compiled) == (1, False)
    last = err.splitlines()[-1]
    assert last.startswith(word)
    assert all(system in last for system in ("Debian", "Fedora", "macOS", "Windows"))
