"""Build of the Cython engines: the one place for compiler directives.

MARGINLINEAR_BOUNDS=1 in the environment builds with every index checked: typed memoryviews by
Cython, raw pointers by the macro of _core/check.pxd.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BOUNDS = os.environ.get("MARGINLINEAR_BOUNDS", "") not in ("", "0")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": BOUNDS,
    "initializedcheck": BOUNDS,
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}

# Sums keep the order of the source (no -ffast-math): the same bits on every run. No product is fused with a sum: the
# same bits, too, whatever the processor offers.
COMPILE_ARGS = [] if sys.platform == "win32" else [
    "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
CORES = os.cpu_count() or 1


def extensions():
    root = Path(__file__).parent
    for path in sorted((root / "marginlinear").rglob("*.pyx")):
        source = path.relative_to(root)
        yield Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            define_macros=[("ML_BOUNDS", "1")] if BOUNDS else [],
            extra_compile_args=COMPILE_ARGS,
            depends=sorted(header.relative_to(root).as_posix() for header in path.parent.glob("*.h")),
        )


setup(
    ext_modules=cythonize(
        list(extensions()),
        compiler_directives=DIRECTIVES,
        force=BOUNDS,
        nthreads=0 if sys.platform in ("win32", "darwin") else CORES,
    ),
    options={"build_ext": {"parallel": CORES}},
)
