"""Programs that are at work while a test looks on."""

import time

# A fit of `cs` that is at work until it is ended: sweeps, as Newton steps end it within a second.
HARD = ["-s", "cs", "--algorithm", "cd", "-c", "1e6", "-e", "1e-15", "--max-iter", "100000000", "--time-limit", "50"]


def until(condition):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 30 s")


def has_text(path):
    return path.exists() and path.stat().st_size > 0
