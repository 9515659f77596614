"""The machine's memory."""

import math
import os


def memory():
    """Bytes of the machine's memory, or infinity where it does not say."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return math.inf
