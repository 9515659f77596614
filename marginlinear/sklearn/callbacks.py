"""scikit-learn's callbacks (SLEP 23), where its version has them: `estimator.set_callbacks(...)`.

Each check of the certificate is the end of a task, "check", of the fit. Its `fitted_estimator` is the model so far,
made where a callback asks for it. A callback that returns True there ends the fit, which keeps that model.
"""

import copy

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # they came with scikit-learn 1.9
    class CallbackSupportMixin:
        """Nothing."""

    def with_callbacks(fit):
        return fit


class Tasks:
    """The callbacks of an estimator's fit as `train` takes one; `told` is what its `_describe` is told."""

    def __init__(self, estimator, X, y, sample_weight, told):
        self.estimator, self.told = estimator, told
        self.data = {"X": X, "y": y, "metadata": None if sample_weight is None else {"sample_weight": sample_weight}}
        self.root = estimator._init_callback_context(max_subtasks=None)
        self.root.call_on_fit_task_begin(estimator=estimator, **self.data)
        self._begin()

    def _begin(self):
        self.task = self.root.subcontext(task_name="check")
        self.task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def __call__(self, check):
        known = None if check.model is None else lambda: self.attributes(check.model())
        stop = self.task.call_on_fit_task_end(estimator=self.estimator, reconstruction_attributes=known, **self.data)
        self._begin()
        return stop

    def attributes(self, model):
        """The attributes of the estimator, had it ended with this model."""
        fitted = copy.copy(self.estimator)
        fitted._take(model, None, self.told)
        return vars(fitted)

    def end(self, model):
        """The last task has nothing to do."""
        known = {"reconstruction_attributes": lambda: self.attributes(model), **self.data}
        for task in (self.task, self.root):
            task.call_on_fit_task_end(estimator=self.estimator, **known)
