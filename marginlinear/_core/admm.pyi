from collections.abc import Callable
from typing import Protocol, TypeAlias

from marginlinear._core.block_cd import BlockCD
from marginlinear._typing import FloatArray, Floats, MemoryView

_Schedule: TypeAlias = tuple[float, float, int]

SCHEDULES: tuple[_Schedule, _Schedule]
SMALL: float
LAST: float
PERIOD: int
SPREAD: float
EACH: float
MOST: int
FEWEST: int
FEW: float
BENIGN: float
FIRMNESS: float
LIMIT: int
SCARCE: int

class _Budget(Protocol):
    def exhausted(self, n_iter: int, /) -> object: ...
    def record(self, n_iter: int, objective: float, bound: float, certificate: float, /) -> object: ...

class ADMM:
    def __init__(self, engine: BlockCD) -> None: ...
    @property
    def W(self) -> MemoryView: ...
    @staticmethod
    def iterations(engine: BlockCD, worth: float) -> int: ...
    def schedules(self, n: int) -> tuple[_Schedule, ...]: ...
    def run(self, n: int, budget: _Budget, seed: int = 0, schedule: _Schedule = ...,
            offer: Callable[[float, FloatArray], object] | None = None) -> float: ...

def spread(values: Floats, seed: int) -> FloatArray: ...
