from typing import SupportsIndex

from marginlinear._typing import Floats

ROWS_READ: int
ROWS_NOT_A_NUMBER: int
ROWS_NOT_FINITE: int
ROWS_SHORT_LINE: int
ROWS_LONG_LINE: int
ROWS_END_OF_DATA: int

def format_rows(W: Floats) -> bytes: ...
def parse_rows(text: bytes | bytearray | memoryview, start: SupportsIndex, out: Floats) -> tuple[int, int]: ...
