"""Stratified cross-validation."""

import numpy as np

from marginlinear.arrays import select_rows
from marginlinear.cli.output import warn
from marginlinear.selection import stratified_folds


def cross_validate(training, data, n, seed):
    """(rows predicted right, Info of each fold) for the fits of a `train.Training`."""
    m = len(data.labels)
    if n > m:
        warn("# folds > # data. Will use # folds = # data instead (i.e., leave-one-out cross validation)")
        n = m
    folds = stratified_folds(data.labels, n, seed)
    weights = None if training.sample_weight is None else np.array(training.sample_weight)
    correct, infos = 0, []
    for fold in range(n):
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        labels = data.labels[inside]
        there = set(labels.tolist())
        model = training.fit(
            select_rows(data, inside), labels,
            sample_weight=None if weights is None else weights[inside],
            class_weight={label: factor for label, factor in training.class_weight.items() if label in there},
            fold=fold + 1)
        predicted = model.predict(select_rows(data, outside), threads=training.params.get("threads"))
        correct += int(np.count_nonzero(predicted == data.labels[outside]))
        infos.append(model.info)
    return correct, infos
