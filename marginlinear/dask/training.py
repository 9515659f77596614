"""train, where the rows are on the workers of a cluster."""

import numpy as np
from distributed import default_client, wait

from marginlinear import fitting, registry
from marginlinear import params as P
from marginlinear._version import version
from marginlinear.algorithms.partitions import fit as partitioned
from marginlinear.api import warn_unless_converged
from marginlinear.dask import collections
from marginlinear.dask.communicator import Cluster, drop
from marginlinear.dask.journal import Journal
from marginlinear.data.checks import class_factors, labels_with
from marginlinear.data.labels import require_words
from marginlinear.errors import ConvergenceWarning
from marginlinear.model import Model, among
from marginlinear.problem import Run

# What `marginlinear.train` takes, and partitions do not.
HERE = "scale", "probability", "start", "memory", "sweeps_per_load"
# Messages from one copy of the states to the next, at least; seconds without any worker that end a fit.
CHECKPOINT_EVERY = P.Param("checkpoint_every", int, 10, "", "[1, inf)")
WAIT_TIMEOUT = P.Param("wait_timeout", float, 300.0, "", "(0, inf)")


def train(X, y=None, *, solver=None, classes=None, class_weight=None, sample_weight=None, client=None, partitions=None,
          shuffle="auto", checkpoint=None, checkpoint_every=CHECKPOINT_EVERY.default, resume=False,
          wait_timeout=WAIT_TIMEOUT.default, progress=None,
          **params):
    """Train a linear classifier on rows that are spread over the workers of a Dask cluster.

    Parameters
    ----------
    X : dask Array, dask DataFrame, or list
        One chunk of columns; the blocks of an Array may be sparse (SciPy's CSR). Or a list of delayed or of futures of
        arrays, dense or sparse; or, without y, of pairs of rows and labels; or of paths of stores and LIBSVM files,
        which every worker can read under this name.
    y : dask Array or Series, or list, optional
        Labels, in chunks as X has them.
    solver, classes, class_weight, progress
        As of `marginlinear.train`.
    sample_weight : dask Array or Series, or list, optional
        Weights of the rows, >= 0, in chunks as X has them.
    client : distributed.Client, optional
        Default: the one that was made last.
    partitions : int or "chunks", optional
        Partitions, of neighbouring chunks. What is found depends on their boundaries, in its bits, not on the number of
        workers. Default: as many as workers. Few and large ones need fewer rounds.
    shuffle : "auto" or bool, default="auto"
        Whether rows are dealt anew to the partitions: "auto" where these differ in their classes so that rounds would
        not converge, as where rows are sorted by class; a PartitionWarning says so. False: only the warning, and an
        error where a partition then lacks a class.
    checkpoint : str or path, optional
        A folder of the driver's in which a fit is kept: see `resume`.
    checkpoint_every : int, default=10
        Messages between two copies of the rows' states on the driver, at least: more where copies would take more than
        a twentieth of the time.
    resume : bool, default=False
        Go on with the fit in `checkpoint`, whose driver was lost: with the same data, partitions and parameters the
        result has the same bits as if it had not been.
    wait_timeout : float, default=300
        Seconds that the cluster may be without any worker.
    **params
        The method's parameters and those of every run; `threads` are those of a task of a worker's, by default 1.

    Returns
    -------
    Model
        As of `marginlinear.train`, but that no other fit can start from it; `info.cluster` says what was sent.

    Raises
    ------
    ValueError, TypeError
        As of `marginlinear.train`, with the number of the chunk; for a method that does not go over partitions, and
        for workers without marginlinear, or with another version.
    Exception
        The third one of a task; its `__notes__` name the partition and the worker.
    OSError
        A worker cannot read a file.
    TimeoutError
        The cluster has had no worker for `wait_timeout` seconds. `partial` is a Model of the best weights so far,
        without a certificate, where one column was being fitted by rounds; else None.

    Warns
    -----
    ConvergenceWarning
    PartitionWarning
        Rows were dealt anew, or rounds will be slow; or a worker is at least twice as slow as the others.

    Notes
    -----
    Partitions visit their rows at the same time; after each round the sum of what they want is gone as far as the dual
    rises (algorithms/partitions/rounds.py). The certificate is the sum over all rows, as on one machine. Few weights
    are found by Newton steps of summed matrices; of losses with kinks or a flat side the rows that still matter are
    brought to one worker in the end, where they fit it.

    A single partition is fitted by one task, as on one machine.
    """
    method = registry.get(registry.DEFAULT if solver is None else solver)
    for name in HERE:
        if name in params:
            raise ValueError(f"{name} works on rows that are here: leave it out over partitions")
    values, run_values = fitting.resolved(method, params)
    fitting.require_partitions(method, values, run_values["algorithm"])
    if values.get("kernel") is not None:
        raise ValueError(f"kernel = {values['kernel']!r} does not go over partitions: give no kernel")
    P.check_function("progress", progress)
    check_words(partitions, shuffle, checkpoint, resume)
    check_numbers(checkpoint_every, wait_timeout)
    client = default_client() if client is None else client
    require_workers(client)
    fit = DaskFit(client, method, values, run_values, params.get("threads"), progress)
    try:
        parts = collections.parts_of(X, y, sample_weight, client, partitions)
        found, whole = fit.prepare(parts, class_weight, shuffle)
        labels = found if classes is None else labels_with(found, classes)
        fit.communicator = Cluster(client, fit.partitions, checkpoint_every, wait_timeout)
        if checkpoint is not None:
            fit.communicator.journal = Journal(checkpoint, fit.header(whole), resume)
        model = fit.model(whole, found, labels)
    except TimeoutError as error:
        error.partial = fit.partial(error, labels) if fit.communicator is not None else None
        raise
    finally:
        fit.close()
    warn_unless_converged(method, model.info, None, ConvergenceWarning)
    return model


def check_words(partitions, shuffle, checkpoint, resume):
    whole = isinstance(partitions, (int, np.integer)) and not isinstance(partitions, bool) and partitions > 0
    if not (partitions is None or partitions == "chunks" or whole):
        raise P.refusal("partitions", partitions, 'a number above 0, "chunks" or None', ValueError)
    if shuffle not in ("auto", True, False):
        raise P.refusal("shuffle", shuffle, '"auto", True or False', ValueError)
    if resume and checkpoint is None:
        raise ValueError("resume = True is for a checkpoint: give its folder")


def check_numbers(checkpoint_every, wait_timeout):
    for param, value in ((CHECKPOINT_EVERY, checkpoint_every), (WAIT_TIMEOUT, wait_timeout)):
        param.check(value)


def require_workers(client):
    """ValueError that names a worker without marginlinear, or with another version of it."""
    def version_there():
        # Not by reference: a worker may be without this module.
        import marginlinear

        return marginlinear.__version__

    for worker, found in client.run(version_there, on_error="return").items():
        if isinstance(found, BaseException):
            raise ValueError(f"worker {worker} cannot import marginlinear ({found}): install version {version} there")
        if found != version:
            raise ValueError(f"worker {worker} has marginlinear {found}, here it is {version}: install the same")


class DaskFit:
    """One call of `train`."""

    def __init__(self, client, method, values, run_values, threads, progress):
        self.client, self.method, self.values, self.progress = client, method, values, progress
        self.run_values = dict(run_values)
        self.bias = self.run_values.pop("bias")
        self.run_values["shared"] = False
        if not threads:
            # A worker's threads are for its tasks.
            self.run_values["threads"] = 1
        self.futures, self.partitions, self.communicator = [], [], None

    def prepare(self, parts, class_weight, shuffle):
        """(labels, Whole): the partitions are made, on the workers."""
        client = self.client
        self.futures += parts
        told = [client.submit(collections.described, part, pure=False) for part in parts]
        descriptions = client.gather(told)
        there = [at for at, one in enumerate(descriptions) if one.rows]
        parts, descriptions = [parts[at] for at in there], [descriptions[at] for at in there]
        if not parts:
            raise ValueError("X has no rows, or sample_weight is zero for all of them")
        labels = collections.labels_of_all(descriptions)
        require_words(labels.tolist())
        fitting.require_classes(self.method, labels)
        weights = sum(np.bincount(np.searchsorted(labels, one.labels), one.weights, len(labels))
                      for one in descriptions)
        factors = np.ones(len(labels)) if class_weight is None else class_factors(class_weight, labels, weights)
        before, parts = parts, collections.evened(parts, descriptions, labels, shuffle, self.run_values["seed"], client)
        if parts is not before:
            self.futures += parts
        self.width = max(one.columns for one in descriptions)
        fitting.require_features(self.width, self.values, {"bias": self.bias})
        size, room = float(weights.sum()), collections.room_of(client).of_a_partition
        self.partitions = [
            client.submit(collections.partition_of, part, number, labels, self.width, factors, size, self.bias,
                          room, pure=False, retries=collections.RETRIES) for number, part in enumerate(parts)]
        wait(self.partitions)
        self.rows = [one.rows for one in descriptions]
        if parts is not before:
            self.rows = client.gather([client.submit(lambda part: len(part.y), part, pure=False)
                                       for part in self.partitions])
        return labels, partitioned.Whole(self.width, len(labels), size, self.bias, len(parts))

    def header(self, whole):
        """What a journal knows the fit by."""
        prints, rooms = zip(*self.client.gather([self.client.submit(collections.fingerprint, partition, pure=False)
                                                 for partition in self.partitions]), strict=True)
        return {"version": version, "solver": self.method.name, "params": self.effective(self.how(whole.n_classes)),
                "rows": self.rows, "features": self.width, "bias": self.bias, "data": prints, "memory": rooms}

    def how(self, n_classes):
        return None if self.method.joint or n_classes == 2 else self.values["multiclass"]

    def effective(self, how):
        return fitting.effective(self.method, {**self.values, "multiclass": how, "scale": None}, self.run_values)

    def model(self, whole, found, labels):
        method, values = self.method, self.values
        how = self.how(len(found))
        own = {p.name: values[p.name] for p in method.params}
        communicator, run = self.communicator, Run(progress=self.progress, **self.run_values)
        with fitting.named(len(found), self.width, "features"):
            if whole.count == 1 and communicator.journal is None:
                solution = communicator.alone(method.name, own, run, how)
            else:
                solution = partitioned.fit(method, whole, own, run, how, communicator)
        places = solution.state
        info = solution.info._replace(cluster={
            "rows": self.rows, "messages": communicator.total("messages"), "collections": places["collections"],
            "bytes": 8 * places["numbers_sent"], "restarts": communicator.total("restarts"),
            "seconds_waiting": communicator.total("waiting"), "seconds": communicator.pace.seconds})
        fitting.require_finite(solution, None, method)
        fitted = fitting.Fitted(solution.weights, found, self.bias, solution.codes, method.name, self.effective(how),
                                info, None)
        fitted, lowered = among(labels, fitted)
        model = Model(**fitted._asdict())
        if np.any(lowered):
            model.weights, model.bias = np.vstack([model.coef.T, model.intercept - lowered]), 1.0
        return model

    def partial(self, error, labels):
        """Model of the weights that a fit had when the cluster was lost; None without any."""
        weights = getattr(error, "weights", None)
        if weights is None or weights.shape[1] not in ((len(labels),) if self.method.joint else (3 - len(labels),)):
            return None
        return Model(weights, labels, bias=self.bias, solver=self.method.name, params=self.effective(None))

    def close(self):
        """Leave nothing on the cluster."""
        if self.communicator is not None:
            if self.communicator.journal is not None:
                self.communicator.journal.close()
            self.communicator.close()
        drop(self.client, self.futures)
        drop(self.client, self.partitions)
