from collections.abc import Callable, Sequence

from marginlinear._typing import FloatArray

MEMORY: int
TURNS: int
CROSSINGS: int

def least(
    H: FloatArray, slope: FloatArray, w: FloatArray, kinks: FloatArray, enough: float
) -> tuple[FloatArray, int]: ...
def on_signs(
    H: FloatArray, slope: FloatArray, w: FloatArray, kinks: FloatArray, change: FloatArray
) -> tuple[FloatArray, FloatArray]: ...
def extrapolated(
    trail: Sequence[tuple[FloatArray, FloatArray]], model_at: Callable[[FloatArray, FloatArray], float]
) -> tuple[FloatArray, FloatArray]: ...
