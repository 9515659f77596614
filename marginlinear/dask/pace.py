"""How long workers take for their parts of the messages: who is waited for is told, not worked around."""

from __future__ import annotations

import statistics
import threading
import warnings
from typing import TYPE_CHECKING

from marginlinear.errors import PartitionWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

# A worker is slow where it takes so many times what the others do (median), and these have waited for it for this part
# of the time, and for so many seconds.
SLOW, LOST, SECONDS = 2.0, 0.1, 5.0


class Pace:
    """Of all messages of a call of `train`, those of columns side by side among them.

    Attributes
    ----------
    seconds : dict
        What each worker has spent at answers, by its address.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.told, self._waited = False, 0.0
        self._answers: dict[str, int] = {}
        self._lost: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, times: Sequence[tuple[str, float]], waited: float) -> None:
        """`times` are the (address, seconds) of a message's tasks, for which the driver has `waited` so many seconds.

        Warns
        -----
        PartitionWarning
            Once, as soon as a worker is slow.
        """
        longest: dict[str, float] = {}
        with self._lock:
            self._waited += waited
            for worker, seconds in times:
                longest[worker] = max(seconds, longest.get(worker, 0.0))
                self.seconds[worker] = self.seconds.get(worker, 0.0) + seconds
                self._answers[worker] = self._answers.get(worker, 0) + 1
            if len(longest) < 2:
                return
            last = max(longest, key=longest.__getitem__)
            seconds = longest.pop(last)
            self._lost[last] = self._lost.get(last, 0.0) + seconds - statistics.median(longest.values())
            lost, each = self._lost[last], {worker: self.seconds[worker] / count
                                            for worker, count in self._answers.items()}
            own = each.pop(last)
            others = statistics.median(each.values())
            if self.told or lost < max(SECONDS, LOST * self._waited) or own < SLOW * others:
                return
            self.told = True
        warnings.warn(f"worker {last} takes {own:.2g} s for its part of a message, {own / others:.1f} times what the "
                      f"others do (median), which have waited for it for {lost:.2g} of {self._waited:.2g} s: look for "
                      "other work on its machine, and whether it has more rows (info.cluster['rows']); then train "
                      "without it, or in chunks of one size", PartitionWarning, stacklevel=2)
