"""How texts are mutated: by bytes, by words, by lines, and by joining two of them."""

import re

NUMBERS = [b"0", b"-0", b"1", b"-1", b"2", b"1.5", b"1e0", b".5", b"5.", b"+1", b"00", b"1e-400", b"1e400", b"-1e308",
           b"1.7976931348623157e308", b"2.2250738585072014e-308", b"5e-324", b"nan", b"inf", b"-inf", b"0x10", b"1_0",
           b"65535", b"65536", b"2147483646", b"2147483647", b"2147483648", b"4294967296", b"9007199254740993",
           b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"1" + b"0" * 30, b"9" * 400,
           b"0." + b"1" * 60, b"16777217", b"100000000", b"0.1", b"0.30000000000000004"]
PIECES = [b" ", b"\n", b"\r\n", b"\t", b":", b"#", b",", b"-", b"+", b".", b"e", b"\0", b"\x1a", b"\xff",
          b"\xef\xbb\xbf", b"\xc3\xa9", b"\xe2\x80\xa8", b"{", b"}", b"[", b"]", b'"', b"\\", b"[" * 2000,
          b"1:1", b" 5:", b"qid:1"]
WORD = re.compile(rb"[^\s,:\[\]{}\"]+")


def mutate(rng, data, other, words=()):
    """1 to 4 changes of `data`; `words` are those of the format."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        way = rng.randrange(8)
        if way == 0 and data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif way == 1:
            start = rng.randint(0, len(data))
            del data[start : start + rng.choice((1, 1, 2, 8, 64))]
        elif way == 2:
            start = rng.randint(0, len(data))
            data[start:start] = rng.choice(PIECES)
        elif way == 3:
            replace(rng, data, WORD, NUMBERS)
        elif way == 4 and words:
            replace(rng, data, WORD, words)
        elif way == 5:
            lines = bytes(data).splitlines(keepends=True) or [b""]
            at = rng.randrange(len(lines))
            lines[at : at + 1] = rng.choice(((), lines[at : at + 1] * 2, [rng.choice(lines)], lines[at : at + 2][::-1]))
            data[:] = b"".join(lines)
        elif way == 6:
            start, at = rng.randint(0, len(data)), rng.randint(0, len(other))
            data[start : start + rng.choice((0, 8, 64, 1 << 20))] = other[at : at + rng.choice((8, 64, 1 << 20))]
        elif way == 7:
            start = rng.randint(0, len(data))
            data[start:start] = data[start : start + rng.choice((1, 4, 30))] * rng.choice((1, 1, 3, 50))
    return bytes(data)


def replace(rng, data, pattern, choices):
    """Put one of `choices` in the place of a match of the pattern, from a place in `data` drawn by chance."""
    found = pattern.search(data, rng.randint(0, len(data))) or pattern.search(data)
    if found:
        data[found.start() : found.end()] = rng.choice(choices)


def shape_of(message):
    """A message without what came from the input: what stands in quotes or brackets, and numbers."""
    return re.sub(r"(?s)['\"\[].*['\"\]]|[-+.\w]*\d[-+.\w]*", "#", message)[:80]
