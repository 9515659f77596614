"""margin-train on a Dask cluster: --cluster, --scheduler-file, and what goes with them."""

from __future__ import annotations

import glob
import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marginlinear.cli.output import Failure, warn
from marginlinear.errors import ConvergenceWarning
from marginlinear.options import UsageError
from marginlinear.params import Param

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from marginlinear.model import Model
    from marginlinear.options import CommandLine

CLUSTER = Param("cluster", str, None, "train on this Dask cluster, as in tcp://host:8786; local:N starts N processes "
                "here, for trying. The training_set_file, which may be a quoted pattern as 'part-*.svm', has to be "
                "there for all workers under this name", metavar="ADDRESS")
SCHEDULER_FILE = Param("scheduler_file", str, None, "train on the Dask cluster of this file, which dask scheduler "
                       "--scheduler-file writes", metavar="FILE")
PARTITIONS = Param("partitions", int, None, "of a cluster: partitions of the rows (default: one a worker)", "[1, inf)")
OPTIONS = CLUSTER, SCHEDULER_FILE, PARTITIONS
# What works on the rows here.
HERE = ("weights", "cross_validation", "search", "grid", "groups", "fold_file", "store", "zero_based", "text_labels",
        "float32", "memory", "sweeps_per_load", "kernel")


def on_cluster(line: CommandLine, declared: Sequence[Param], checkpoint: str | None,
               resume: str | None) -> OnCluster | None:
    """OnCluster, or None without --cluster and --scheduler-file; `declared` are the command's options, `checkpoint` and
    `resume` the folders that were given."""
    where = [param for param in (CLUSTER, SCHEDULER_FILE) if line.given(param)]
    if not where:
        if line.given(PARTITIONS):
            raise UsageError(f"{PARTITIONS.flag} is for a cluster: give {CLUSTER.flag} or {SCHEDULER_FILE.flag} too")
        return None
    if len(where) > 1:
        raise UsageError(f"{CLUSTER.flag} and {SCHEDULER_FILE.flag} both name a cluster: give one")
    for param in declared:
        if param.name in HERE and line.given(param):
            raise UsageError(f"{line.flag(param)} works on rows that are here: leave it out with {where[0].flag}")
    return OnCluster(line, checkpoint, resume)


class OnCluster:
    """Where `margin-train` trains, in place of here."""

    def __init__(self, line: CommandLine, checkpoint: str | None, resume: str | None) -> None:
        self.place = Place(line)
        self.rest = {"partitions": line.value(PARTITIONS), "checkpoint": resume or checkpoint,
                     "resume": bool(resume)}

    def fit(self, path: str, **given: Any) -> Model:
        """The Model of the files that `path` names."""
        paths = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not paths:
            raise Failure(f"can't open input file {path}: there is none of this name or pattern")
        try:
            import marginlinear.dask as mld
        except ImportError as error:
            raise Failure(error) from error
        with self.place.client() as client, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model = mld.train([os.path.abspath(one) for one in paths], client=client, **given, **self.rest)
            except TimeoutError as error:
                raise Failure(error) from error
        for warning in caught:
            if issubclass(warning.category, UserWarning) and not issubclass(warning.category, ConvergenceWarning):
                warn(warning.message)
        return model


def place_of(line: CommandLine) -> Place | None:
    """The Place that CLUSTER or SCHEDULER_FILE names; None without."""
    where = [param for param in (CLUSTER, SCHEDULER_FILE) if line.given(param)]
    if len(where) > 1:
        raise UsageError(f"{CLUSTER.flag} and {SCHEDULER_FILE.flag} both name a cluster: give one")
    return Place(line) if where else None


class Place:
    """A Dask cluster by its address, or by its scheduler's file."""

    def __init__(self, line: CommandLine) -> None:
        self.address, self.file = line.value(CLUSTER), line.value(SCHEDULER_FILE)
        self.local = None
        if self.address is not None and self.address.startswith("local:"):
            count = self.address.removeprefix("local:")
            if not count.isdecimal() or not 0 < int(count) <= 1024:
                raise UsageError(f"{CLUSTER.flag} {self.address}: give local:N, N from 1 to 1024")
            self.local = int(count)

    @contextmanager
    def executor(self) -> Iterator[Any]:
        """What runs functions there, as an Executor of concurrent.futures."""
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise Failure("dask is needed: pip install 'marginlinear[dask]'") from error
        with self.client() as client, client.get_executor(pure=False) as executor:
            yield executor

    @contextmanager
    def client(self) -> Iterator[Any]:
        from distributed import Client, LocalCluster

        if self.local is not None:
            # What goes wrong in a task is raised here.
            with LocalCluster(n_workers=self.local, threads_per_worker=1, processes=True, dashboard_address=":0",
                              silence_logs=logging.CRITICAL) as cluster, Client(cluster) as client:
                yield client
            return
        if self.file is not None and not os.path.exists(self.file):
            raise Failure(f"can't open scheduler file {self.file}: there is none; it is written by: dask scheduler "
                          f"--scheduler-file {self.file}")
        try:
            client = Client(self.address, scheduler_file=self.file, timeout="10s")
        except (OSError, ValueError) as error:
            raise Failure(f"can't reach the cluster {self.address or self.file}: {error}; start it by: dask scheduler, "
                          "and on each host: dask worker tcp://HOST:8786") from error
        with client:
            yield client
