"""What a paper's table is: its sets, and which file has which of them; how rows were split and scaled; the methods, and
the values that were tried. A word in a preset that the paper does not say is in its `readings`."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from marginlinear.compare.methods import contestant_of
from marginlinear.compare.sets import Dataset, dataset
from marginlinear.data.reading import PACKED
from marginlinear.params import BIAS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from marginlinear._typing import Scale
    from marginlinear.compare.contestants import Contestant
    from marginlinear.compare.design import Design

FETCHED = "tools/fetch_data.py"
SCIKIT = "sklearn:"


class PaperSet(NamedTuple):
    """A set as the paper's table has it.

    Attributes
    ----------
    name : str
        As in the table of results.
    rows, features : int
        As the paper prints them.
    files : tuple of str
        The files that its rows are in, one below the other, without what says how they are packed; of sets that come
        with scikit-learn "sklearn:" and the name. Empty where the rows are not at hand in any form.
    origin : str
        Where the set comes from.
    differs : str
        How the rows of the files are not the paper's; "" where nothing tells them apart.
    take : int or None
        So many of the rows, drawn at random.
    classes : int or None
        The rows of so many classes, those of the least labels.
    """

    name: str
    rows: int
    features: int
    files: tuple[str, ...] = ()
    origin: str = "UCI repository"
    differs: str = ""
    take: int | None = None
    classes: int | None = None

    def found(self, folder: str | os.PathLike[str] | None) -> tuple[str, ...] | None:
        """The paths of its files in the folder; None where one of them is not there."""
        paths = [self._path(file, folder) for file in self.files]
        return None if not paths or None in paths else tuple(path for path in paths if path is not None)

    def _path(self, file: str, folder: str | os.PathLike[str] | None) -> str | None:
        if file.startswith(SCIKIT):
            return file
        if folder is None:
            return None
        names = (os.path.join(folder, file + ending) for ending in ("", *PACKED))
        return next((path for path in names if os.path.isfile(path)), None)

    def source(self, paths: tuple[str, ...]) -> Rows:
        return Rows(self.name, paths, self.take, self.classes)


class Rows(NamedTuple):
    """The rows of files one below the other, as a set without a given test part."""

    name: str
    paths: tuple[str, ...]
    take: int | None = None
    classes: int | None = None

    @property
    def given(self) -> bool:
        return False

    def load(self, regression: bool) -> Dataset:
        from scipy.sparse import csr_array, vstack

        parts = [_read(path) for path in self.paths]
        width = max(X.shape[1] for X, _ in parts)
        X = vstack([csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width)) for X, _ in parts],
                   format="csr") if len(parts) > 1 else parts[0][0]
        y = np.concatenate([labels for _, labels in parts])
        if self.classes is not None:
            some = np.flatnonzero(np.isin(y, np.unique(y)[:self.classes]))
            X, y = X[some], y[some]
        if self.take is not None:
            rng = np.random.default_rng(zlib.crc32(self.name.encode()))
            chosen = np.sort(rng.permutation(len(y))[:self.take])
            X, y = X[chosen], y[chosen]
        return dataset(self.name, X, y, regression)


def _read(path: str) -> tuple[Any, Any]:
    if path.startswith(SCIKIT):
        import sklearn.datasets
        from scipy.sparse import csr_array

        X, y = getattr(sklearn.datasets, f"load_{path.removeprefix(SCIKIT)}")(return_X_y=True)
        return csr_array(X), y
    from marginlinear.libsvm import read_libsvm

    found = read_libsvm(path)
    return found.to_scipy(), found.labels


class PaperMethod(NamedTuple):
    """A column of the table.

    Attributes
    ----------
    name : str
        As the paper prints it.
    spec : str
        What stands for it, as `margin-compare -s` has it; "" where nothing does.
    why : str
        Why nothing does.
    """

    name: str
    spec: str = ""
    why: str = ""


class Protocol(NamedTuple):
    """A table of a paper.

    Attributes
    ----------
    name : str
    paper, table : str
    published : str
        The file of its figures; "" where they are lost, as those of a picture.
    sets : tuple of PaperSet
    methods : tuple of PaperMethod
        The paper's own comes first.
    design : Design
    scale : str or None
    readings : tuple of str
        What the paper does not say, and how it is read here.
    common : dict
        Parameters of all methods of ours.
    vary : callable or None
        Contestant -> Contestant, for grids that follow from the rows.
    marks : str
        What ● and ○ of the figures mean. "rivals": on a rival's figure, that the own method is significantly better, or
        worse, than the rival; a method's name: that a figure is better, or worse, than that method's; "": there are
        none.
    one_test_part : bool
        Whether the paper's repetitions seem to share their test rows: its means then differ from ours by what test
        parts differ by, too.
    """

    name: str
    paper: str
    table: str
    published: str
    sets: tuple[PaperSet, ...]
    methods: tuple[PaperMethod, ...]
    design: Design
    scale: Scale | None
    readings: tuple[str, ...]
    common: Mapping[str, Any] = {}  # a field's default
    vary: Callable[[Contestant], Contestant] | None = None
    marks: str = ""
    one_test_part: bool = False

    def at_hand(self, folder: str | os.PathLike[str] | None) -> dict[str, Rows]:
        """Name -> source, of the sets whose files are there."""
        there = ((one, one.found(folder)) for one in self.sets)
        return {one.name: one.source(paths) for one, paths in there if paths is not None}

    def set_of(self, name: str) -> PaperSet:
        found = next((one for one in self.sets if one.name == name), None)
        if found is None:
            raise ValueError(f"{self.name} has no set {name!r}: give one of {', '.join(one.name for one in self.sets)}")
        return found

    def contestants(self, names: Sequence[str] | None = None, grids: Mapping[str, str] | None = None,
                    ) -> tuple[list[Contestant], dict[str, str]]:
        """(the Contestants, name -> why not, of those that are not there).

        Parameters
        ----------
        names : sequence of str, optional
            Of the methods, those to be compared; the paper's own is always among them.
        grids : dict, optional
            Name -> a grid as text, in place of the paper's.
        """
        known = [one.name for one in self.methods]
        for name in (*(names or ()), *(grids or ())):
            if name not in known:
                raise ValueError(f"{self.name} has no method {name!r}: give one of {', '.join(known)}")
        found, lacking = [], {}
        for one in self.methods:
            if names is not None and one.name not in names and one is not self.methods[0]:
                continue
            if not one.spec:
                lacking[one.name] = one.why
                continue
            try:
                made = contestant_of(f"{one.name}={one.spec}", {BIAS.name: -1.0, **self.common},
                                     {one.name: grids[one.name]} if grids and one.name in grids else None)
            except ValueError as error:
                lacking[one.name] = str(error)
                continue
            found.append(made if self.vary is None else self.vary(made))
        return found, lacking
