"""Builds of the engines with a sanitizer, each in a copy of the sources, so that the build in place stays.

They stand below build/fuzz, or where MARGINLINEAR_FUZZ says. `python -m tools.fuzz.build address` makes one by itself.
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILDS = Path(os.environ.get("MARGINLINEAR_FUZZ", ROOT / "build" / "fuzz")).resolve()

# Behind setup.py's own flags, so these decide. Coverage is counted by watch.c.
FLAGS = {
    "address": "-O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow "
               "-fno-sanitize-recover=all -fsanitize-coverage=trace-pc",
    "thread": "-O1 -g1 -fno-omit-frame-pointer -fsanitize=thread",
}
# A sanitizer looks for C++'s exceptions when it starts: matplotlib's come later.
LIBRARIES = {"address": ("libasan.so", "libstdc++.so.6"), "thread": ("libtsan.so", "libstdc++.so.6")}
OPTIONS = {
    # Leaks at exit are CPython's. NULL for what no machine has, as malloc answers without a sanitizer.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096:quarantine_size_mb=2:"
                    "allocator_release_to_os_interval_ms=-1:abort_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:max_allocation_size_mb=4096:"
                    f"halt_on_error=1:abort_on_error=1:suppressions='{HERE / 'tsan.txt'}'",
}
SOURCES = {".py", ".pyx", ".pxd", ".pxi", ".h", ".typed"}


def build(sanitizer):
    """The folder from which marginlinear is imported as built with the sanitizer; only what has changed is compiled."""
    folder = BUILDS / sanitizer
    sources = {path.relative_to(ROOT) for path in (ROOT / "marginlinear").rglob("*") if path.suffix in SOURCES}
    sources |= {Path(name) for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE")}
    for old in (folder / "marginlinear").rglob("*"):
        if old.suffix in SOURCES and old.relative_to(folder) not in sources:
            old.unlink()
    for source in sources:
        (folder / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / source, folder / source)
    compiler = folder / "cc"
    compiler.write_text(f'#!/bin/sh\nexec gcc "$@" {FLAGS[sanitizer]}\n')
    compiler.chmod(0o755)
    cc = quote(str(compiler))
    with open(folder / "log", "wb") as log:
        done = subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=folder, stdout=log,
                              stderr=subprocess.STDOUT, env=os.environ | {"CC": cc, "LDSHARED": f"{cc} -shared"})
    if done.returncode:
        raise SystemExit(f"the build failed, see {folder / 'log'}")
    return folder


def library(name, folder):
    """The shared library of NAME.c beside this file, made in the folder. LD_PRELOAD takes no path with blanks."""
    made = Path(folder) / f"{name}.so"
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", made, HERE / f"{name}.c", "-ldl"], check=True)
    return made


def environment(sanitizer, preload=()):
    """The environment of a Python that runs with the sanitizer, or with None, and with shared libraries of ours."""
    wanted = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    # The library is the one of this process: in place, or installed.
    paths = [str(Path(find_spec("marginlinear").origin).parents[1]), str(ROOT)]
    libraries = [str(path) for path in preload]
    if sanitizer:
        paths.insert(0, str(build(sanitizer)))
        libraries[:0] = [subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True,
                                        check=True).stdout.strip() for name in LIBRARIES[sanitizer]]
        wanted |= OPTIONS
    wanted["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    if libraries:
        wanted["LD_PRELOAD"] = " ".join(libraries)
    return wanted


if __name__ == "__main__":
    print(build(sys.argv[1]))
