"""Build of the Cython engines: the one place for compiler directives.

    python setup.py build_ext --inplace                     in the source tree, what has changed
    python setup.py build_test_kernels --build-lib FOLDER   tests/*.pyx, which tests import and no wheel holds

MARGINLINEAR_BOUNDS=1 in the environment builds with every index checked, typed memoryviews by Cython, raw pointers by
the macro of _core/check.pxd, and compiles in less time.
"""

import contextlib
import hashlib
import importlib
import io
import os
import sys
import tempfile
import tomllib
from pathlib import Path

import Cython
from Cython.Build import cythonize
from Cython.Build.Dependencies import create_dependency_tree
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

from distutils.command.install_data import install_data  # isort: skip  # setuptools brings it

BOUNDS = os.environ.get("MARGINLINEAR_BOUNDS", "") not in ("", "0")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": BOUNDS,
    "initializedcheck": BOUNDS,
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
    "emit_code_comments": False,
    "freethreading_compatible": True,
    "show_performance_hints": not BOUNDS,
}

# Sums keep the order of the source (no -ffast-math): the same bits on every run. No product is fused with a sum: the
# same bits, too, whatever the processor offers.
COMPILE_ARGS = [] if sys.platform == "win32" else [
    "-O1" if BOUNDS else "-O2", "-g0", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
# Loops over dense rows, classes and tiles, and what they use, are 3 to 40 % faster so; other modules gain nothing.
VECTORISED = () if BOUNDS or sys.platform == "win32" else (
    "active_blocks", "admm", "block_cd", "block_newton", "cholesky", "dual_engine", "feature_blocks", "hinge_cd",
    "iterates", "kernel_rows", "margin_cd", "pair_cd", "proximal", "row_cache", "rows", "smooth")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
ROOT = Path(__file__).parent
# What Cython adds for typed memoryviews: compiled once, not with each engine.
SHARED = "marginlinear._core._shared"
HEADERS = sorted(header.relative_to(ROOT) for header in ROOT.glob("marginlinear/_core/*.h"))

# What a compiler is given to see what is missing, and the words for it.
NEEDS = {
    "#include <stdlib.h>\n":
        "There is no working C compiler. Install one and repeat the command: Debian, Ubuntu: apt install "
        "build-essential; Fedora: dnf install gcc; macOS: xcode-select --install; Windows: Build Tools for Visual "
        "Studio with 'Desktop development with C++'",
    "#include <Python.h>\n":
        "The C compiler does not find Python.h. Install it and repeat the command: Debian, Ubuntu: apt install "
        "python3-dev; Fedora: dnf install python3-devel; macOS, Windows: Python from python.org brings it",
}


def extensions(folder, top=ROOT):
    """Those of the sources in a folder, named as modules of the folder `top`."""
    for path in sorted(folder.rglob("*.pyx")):
        yield Extension(
            ".".join(path.relative_to(top).with_suffix("").parts),
            [path.relative_to(ROOT).as_posix()],
            include_dirs=sorted({header.parent.as_posix() for header in HEADERS}),
            define_macros=[("ML_BOUNDS", "1")] if BOUNDS else [],
            extra_compile_args=[*COMPILE_ARGS, "-O3"] if path.stem in VECTORISED else COMPILE_ARGS,
        )


def fingerprint(extension):
    """Of all that decides the code of an extension for one Python: sources by content, Cython, directives, flags.

    Times of files do not tell: pip builds in a fresh environment, whose Cython has new ones each time.
    """
    tree = create_dependency_tree()
    sources = [path for source in extension.sources for path in tree.all_dependencies(source)]
    told = [Cython.__version__, DIRECTIVES, extension.define_macros, extension.extra_compile_args,
            [os.environ.get(name) for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")],
            sorted(map(digest, [*sources, *HEADERS]))]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Build(build_ext):
    """Compiles each extension whose fingerprint, or whose file, is not that of its last build.

    The generated C stays in `build_temp`, beside a note of both for each extension.
    """

    shared = SHARED

    def build_extensions(self):
        if self.editable_mode:
            # Where `build_ext --inplace` finds it, in place of a temporary folder.
            where = f"{self.plat_name}-{sys.implementation.cache_tag}"
            self.build_temp, self.build_lib = f"build/temp.{where}", f"build/lib.{where}"
        every = self.extensions
        self.fingerprints = {ext.name: fingerprint(ext) for ext in every}
        self.extensions = [ext for ext in every if not self.is_built(ext)]
        if self.extensions:
            self.check_compiler()
            made = cythonize(self.extensions, compiler_directives=DIRECTIVES, build_dir=self.build_temp, force=True,
                             nthreads=0 if sys.platform in ("win32", "darwin") else CORES,
                             shared_utility_qualified_name=self.shared)
            for ext, generated in zip(self.extensions, made, strict=True):
                ext.sources = generated.sources
            # The longest first, so that all cores end together.
            self.extensions.sort(key=lambda ext: Path(*ext.sources).stat().st_size, reverse=True)
            self.force = True
            super().build_extensions()
        self.extensions = every

    def build_extension(self, ext):
        super().build_extension(ext)
        self.note(ext).write_text(self.what_is_built(ext))

    def is_built(self, ext):
        made, note = Path(self.get_ext_fullpath(ext.name)), self.note(ext)
        return made.exists() and note.exists() and note.read_text() == self.what_is_built(ext)

    def what_is_built(self, ext):
        return f"{self.fingerprints[ext.name]} {digest(self.get_ext_fullpath(ext.name))}"

    def note(self, ext):
        return Path(self.build_temp, f"{ext.name}.built")

    def check_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            for text, missing in NEEDS.items():
                probe.write_text(text)
                try:
                    self.compiler.compile([str(probe)], output_dir=folder)
                except (CompileError, PlatformError) as error:
                    raise PlatformError(f"{error}\n{missing}") from error


class BuildTestKernels(Build):
    shared = None  # that of the package may be another Cython's

    def finalize_options(self):
        self.distribution.ext_modules = list(extensions(ROOT / "tests", ROOT / "tests"))
        super().finalize_options()


class Manuals(install_data):
    """Installs the manual pages, as the commands tell them."""

    def run(self):
        folder = Path("build/man")
        folder.mkdir(parents=True, exist_ok=True)
        sys.path.insert(0, str(ROOT))
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
        for program, place in scripts.items():
            module, _, function = place.partition(":")
            with contextlib.redirect_stdout(io.StringIO()) as page:
                if getattr(importlib.import_module(module), function)(["--help", "man"]):
                    raise PlatformError(f"{program} tells no manual page")
            (folder / f"{program}.1").write_text(page.getvalue(), "utf-8")
        self.data_files = [("share/man/man1", sorted(map(str, folder.glob("*.1"))))]
        super().run()


# Processes that Cython starts may import this file.
if __name__ == "__main__":
    setup(
        ext_modules=[Extension(SHARED, [], extra_compile_args=COMPILE_ARGS), *extensions(ROOT / "marginlinear")],
        cmdclass={"build_ext": Build, "build_test_kernels": BuildTestKernels, "install_data": Manuals},
        data_files=[("share/man/man1", [])],
        options={command: {"parallel": CORES} for command in ("build_ext", "build_test_kernels")},
    )
