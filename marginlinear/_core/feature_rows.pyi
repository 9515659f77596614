from typing import SupportsIndex

from marginlinear._core.rows import Rows
from marginlinear._typing import AnyArray, FloatArray, Floats, Int32s, Int64Array, MemoryView

def pick(
    rows: Rows,
    place: Int32s,
    begins: Int64Array | MemoryView,
    values: AnyArray,
    features: AnyArray,
    lo: SupportsIndex,
    hi: SupportsIndex,
) -> None: ...
def combine(rows: Rows, forces: Floats, sums: Floats, lo: SupportsIndex, hi: SupportsIndex) -> None: ...
def forces_of(table: FloatArray, cost: Floats, y: Int32s, scores: Floats, out: Floats) -> float: ...
def dual_sum(table: FloatArray, cost: Floats, y: Int32s, forces: Floats, share: float) -> float: ...
