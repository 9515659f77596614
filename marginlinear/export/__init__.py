"""Models for programs without marginlinear: ONNX, plain C, SQL, and LIBLINEAR's Python objects."""

from marginlinear.export.c import to_c
from marginlinear.export.liblinear import from_liblinear, to_liblinear
from marginlinear.export.onnx import to_onnx
from marginlinear.export.sql import to_sql

__all__ = ["from_liblinear", "to_c", "to_liblinear", "to_onnx", "to_sql"]
