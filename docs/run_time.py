"""What mkdocstrings is told of estimators: their docstrings are completed when they are imported."""

import inspect

import griffe


class Docstrings(griffe.Extension):
    def on_class(self, *, cls, **_kwargs):
        if cls.path.startswith("marginlinear.sklearn.") and cls.docstring is not None:
            cls.docstring.value = inspect.getdoc(griffe.dynamic_import(cls.path))
