from typing import SupportsIndex

from marginlinear._core.rows import Rows
from marginlinear._typing import Floats, Intps

def scores_at(rows: Rows, which: Intps, w: Floats, out: Floats, lo: SupportsIndex, hi: SupportsIndex) -> None: ...
def pair_steps(rows: Rows, up: Intps, down: Intps, cost: Floats, a: Floats, w: Floats) -> int: ...
