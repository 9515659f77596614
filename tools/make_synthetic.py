#!/usr/bin/env python3
"""Writes a seeded synthetic LIBSVM file of any size, block by block, in bounded memory.

    tools/make_synthetic.py --shape rcv1 -o rcv1like               # 700,000 x 47,236, 50 million nonzeros
    tools/make_synthetic.py --shape rcv1 --classes 50 -o rcv50
    tools/make_synthetic.py --shape kdd2010 --rows 1000000 -o kdd  # 20 million features, 30 ones a row
    tools/make_synthetic.py --shape rcv1 --rows 14000000 --store -o rcv1.store   # a billion nonzeros, 10 GB
    tools/make_synthetic.py --rows 500 --features 300 --nonzeros 20 --zipf 0.8 --classes 4 > small

Rows.    Row lengths are log-normal around the mean that was asked for. Words are drawn with frequencies
         (r + 1)^-zipf for the rank r = 0..features-1, then collected: a word drawn twice is one nonzero, and
         the number of draws is calibrated so that the mean of the distinct words is the one asked for. Ranks
         are spread over the dictionary, so that frequent words stand everywhere in a row; the most frequent
         one is the last feature. Where a row holds more than an eighth of the dictionary, words are drawn
         without replacement.
Values.  tfidf: (1 + log tf) (1 + zipf log(rank + 1)), rows of unit length up to rounding; binary: 1;
         uniform: between 0 and 1.
Labels.  A hidden linear model: every feature speaks for one class with a strength of its own. A class's
         score is centred and scaled by its mean and deviation, normal noise of --noise deviations is added,
         the largest wins. The first rows carry the classes in turn, so that every class occurs. Labels are
         1..k, or -1 and +1.

The same options give the same bytes (with the same NumPy on the same kind of processor: another one may round
the last bit of an exponential otherwise, which can move a word by one rank).
"""

import argparse
import contextlib
import math
import os
import sys
import time

import numpy as np

MAX_FEATURES = 2**31 - 1
MAX_CLASSES = 1000
MAX_OVERSAMPLING = 16.0

DEFAULTS = {"rows": 10_000, "features": 10_000, "nonzeros": 50.0, "zipf": 1.0, "values": "tfidf"}
SHAPES = {
    "free": {},
    "rcv1": {"rows": 700_000, "features": 47_236, "nonzeros": 50e6 / 700_000},
    "kdd2010": {"rows": 20_000_000, "features": 20_000_000, "nonzeros": 30.0, "values": "binary"},
}


def words(strings):
    """Strings of at most 4 bytes as 4-byte words, filled up with zero bytes."""
    return np.array(strings, dtype="S4").view(np.uint32)


class TextTables:
    """Turns features and values into text by table look-up, four characters at a time.

    A token is a row of 4-byte words: " " and the index in groups of 3, 4, 4 digits, ":" and the value.
    Leading zeros, and what a word leaves free, are zero bytes; one pass over the block drops them all.
    """

    def __init__(self, features, digits):
        self.groups = 0 if features < 1000 else 1 if features < 10**7 else 2
        self.digits = digits
        self.lead = words([b" "] + [b" %d" % i for i in range(1, 1000)])
        # low[v] without leading zeros, low[10000 + v] with them: digits to the left decide.
        self.low = words([b""] + [b"%d" % i for i in range(1, 10000)] + [b"%04d" % i for i in range(10000)])
        self.one = words([b":1"])[0]
        self.unit = words([b":0.", b":1."])
        self.fraction = [(10**n, words([b"%0*d" % (n, i) for i in range(10**n)]))
                         for n in [4] * (digits // 4) + [digits % 4] * (digits % 4 > 0)]
        self.width = max(2, 1 + self.groups + 1 + len(self.fraction))

    def tokens(self, index, quantum):
        """index: 1..features; quantum: values times 10^digits as integers, or None for ones."""
        out = np.zeros((len(index), self.width), np.uint32)
        col = 0
        if self.groups == 0:
            out[:, 0] = self.lead[index]
        elif self.groups == 1:
            high = index // 10000
            out[:, 0] = self.lead[high]
            out[:, 1] = self.low[index - high * 10000 + 10000 * (high > 0)]
        else:
            upper = index // 10000
            high = upper // 10000
            out[:, 0] = self.lead[high]
            out[:, 1] = self.low[upper - high * 10000 + 10000 * (high > 0)]
            out[:, 2] = self.low[index - upper * 10000 + 10000 * (upper > 0)]
        col = 1 + self.groups
        if quantum is None:
            out[:, col] = self.one
            return out
        rest = quantum
        for j in range(len(self.fraction) - 1, -1, -1):
            base, table = self.fraction[j]
            high = rest // base
            out[:, col + 1 + j] = table[rest - high * base]
            rest = high
        out[:, col] = self.unit[rest]
        return out


class Generator:
    """The rows of one file, in blocks that depend on the seed and the block's number alone."""

    def __init__(self, rows, features, nonzeros, zipf, classes, values, digits, noise, spread, seed):
        self.rows, self.features, self.mean, self.zipf = rows, features, nonzeros, zipf
        self.classes, self.values, self.noise, self.spread, self.seed = classes, values, noise, spread, seed
        self.digits = 0 if values == "binary" else digits
        self.text = TextTables(features, self.digits)
        self.labels = words([b"-1", b"+1"] if classes == 2 else [b"%d" % (c + 1) for c in range(classes)])
        self.newline = words([b"\n"])[0]
        # index = (step * rank mod features), shifted so that rank 0 is the last index. step is invertible, so
        # that the rank comes back from the index without a table.
        self.step = int(features * 0.6180339887) | 1
        while math.gcd(self.step, features) != 1:
            self.step += 2
        self.back = pow(self.step, -1, features) if features > 1 else 0
        self.dense = nonzeros > features / 8
        # Blocks of a quarter of a million entries stay in the cache.
        block = int(2**18 / (features if self.dense else nonzeros))
        self.block_rows = max(1, min(rows, block, 2**22 // classes))
        self.oversampling = 1.0
        self.centre, self.scale = 0.0, 1.0
        self.calibrate()

    def random(self, *stream):
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, *stream])))

    def calibrate(self):
        """Sets the number of draws, then the centre and scale of the classes' scores, from a trial block."""
        count = max(1, min(2000, 4 * self.block_rows, 2**22 // self.classes))
        if not self.dense:
            for _ in range(12):
                _, _, starts, entries = self.draw(self.random(1), count)
                found = entries / len(starts) - 1
                if abs(found - self.mean) < 1e-3 * self.mean:
                    break
                self.oversampling *= self.mean / found
                if self.oversampling > MAX_OVERSAMPLING:
                    raise ValueError(
                        f"--zipf {self.zipf:g} is too steep for {self.mean:g} different words a row out of "
                        f"{self.features}: lower --zipf or --nonzeros, or raise --features")
        rng = self.random(1)
        key, tf, starts, entries = self.draw(rng, count)
        scores = self.scores(*self.weigh(rng, key, tf, starts, entries)[:2], starts)
        self.centre = scores.mean(axis=0)
        deviation = scores.std(axis=0)
        self.scale = 1 / np.where(deviation > 0, deviation, 1)

    def draw(self, rng, count):
        """Sorted keys row * 2^32 + index, how often each was drawn, and where rows start.

        Each row starts with an entry of index 0, which later becomes its label.
        """
        if self.dense:
            return self.draw_dense(rng, count)
        mean = math.log(self.mean * self.oversampling) - self.spread**2 / 2
        lengths = np.rint(np.exp(rng.normal(mean, self.spread, count))).astype(np.int64)
        np.clip(lengths, 1, int(MAX_OVERSAMPLING * self.features), out=lengths)
        u = rng.random(int(lengths.sum()))
        if self.zipf == 1:
            rank = np.exp(u * math.log(self.features + 1)) - 1
        else:
            power = 1 - self.zipf
            rank = (1 + u * ((self.features + 1) ** power - 1)) ** (1 / power) - 1
        rank = np.minimum(rank.astype(np.int64), self.features - 1)
        keys = np.empty(count + len(u), np.int64)
        keys[:count] = np.arange(count) << 32
        keys[count:] = np.repeat(np.arange(count) << 32, lengths)
        keys[count:] += 1 + (self.step * rank + self.features - 1) % self.features
        keys.sort()
        first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        tf = np.diff(first, append=len(keys))
        key = keys[first]
        return key, tf, np.flatnonzero((key & 0xFFFFFFFF) == 0), len(key)

    def draw_dense(self, rng, count):
        lengths = rng.binomial(self.features, min(1.0, self.mean / self.features), count).clip(1)
        rank = self.rank(np.arange(1, self.features + 1))
        # The n first arrivals of exponential clocks are a draw of n without replacement.
        clocks = rng.exponential(size=(count, self.features)) * (rank + 1.0) ** self.zipf
        order = np.argsort(clocks, axis=1)
        chosen = np.zeros((count, self.features + 1), bool)
        chosen[:, 0] = True
        np.put_along_axis(chosen[:, 1:], order, np.arange(self.features) < lengths[:, None], axis=1)
        row, index = np.nonzero(chosen)
        key = (row.astype(np.int64) << 32) + index
        return key, np.ones(len(key), np.int64), np.flatnonzero(index == 0), len(key)

    def rank(self, index):
        return (self.back * (index.astype(np.int64) - self.features)) % self.features

    def weigh(self, rng, key, tf, starts, entries):
        """Indices, values, and the values' integers as they will be written."""
        index = key & 0xFFFFFFFF
        if self.values == "binary":
            value = np.ones(entries)
            value[starts] = 0
            return index, value, None
        if self.values == "uniform":
            quantum = rng.integers(1, 10**self.digits, entries)
            value = quantum * 10.0**-self.digits
            value[starts] = 0
            return index, value, quantum
        value = 1 + self.zipf * np.log(self.rank(index) + 1.0)
        several = np.flatnonzero(tf > 1)
        value[several] *= 1 + np.log(tf[several])
        value[starts] = 0
        norm = np.sqrt(np.add.reduceat(value * value, starts))
        value /= np.repeat(norm, np.diff(starts, append=entries))
        quantum = np.maximum(np.rint(value * 10**self.digits), 1).astype(np.int64)
        return index, value, quantum

    def scores(self, index, value, starts):
        """Scores of rows for classes: the sum of strength * value over the features that speak for it."""
        h = index.astype(np.uint64) + np.uint64(self.seed)
        h *= np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(32)
        owner = (h % np.uint64(self.classes)).astype(np.int64)
        strength = 0.25 + (h >> np.uint64(40)).astype(np.float64) * 2.0**-24
        row = np.repeat(np.arange(len(starts)) * self.classes, np.diff(starts, append=len(index)))
        flat = np.bincount(row + owner, weights=strength * value, minlength=len(starts) * self.classes)
        return flat.reshape(len(starts), self.classes)

    def drawn(self, number):
        """One block: indices, values, the values' integers, where rows start, their labels' numbers."""
        first = number * self.block_rows
        count = min(self.block_rows, self.rows - first)
        rng = self.random(2, number)
        key, tf, starts, entries = self.draw(rng, count)
        index, value, quantum = self.weigh(rng, key, tf, starts, entries)
        scores = (self.scores(index, value, starts) - self.centre) * self.scale
        if self.noise:
            scores += rng.normal(0, self.noise, scores.shape)
        label = scores.argmax(axis=1)
        turn = np.arange(first, min(first + count, self.classes))
        label[: len(turn)] = turn
        return index, value, quantum, starts, label

    def block(self, number):
        """The text of one block and its number of nonzeros."""
        index, _, quantum, starts, label = self.drawn(number)
        token = self.text.tokens(index, quantum)
        token[starts] = 0
        token[starts, 0] = self.newline
        token[starts, 1] = self.labels[label]
        text = token.tobytes().translate(None, b"\0")
        return text[1:] + b"\n", len(index) - len(starts)

    def chunk(self, number):
        """The rows of one block as a csr_array, and their labels: what its text says."""
        from scipy.sparse import csr_array

        index, value, quantum, starts, label = self.drawn(number)
        features = index > 0
        values = value[features] if quantum is None else quantum[features] / 10.0**self.digits
        indptr = np.append(starts, len(index)) - np.arange(len(starts) + 1)
        X = csr_array((values, (index[features] - 1).astype(np.int32), indptr), shape=(len(starts), self.features))
        return X, 2 * label - 1 if self.classes == 2 else label + 1

    def __len__(self):
        return -(-self.rows // self.block_rows)

    def __iter__(self):
        return map(self.block, range(len(self)))


@contextlib.contextmanager
def output(path):
    """Standard output, or a file which gets its name only when it is whole."""
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise


def write(generator, file, progress):
    """Writes all blocks; returns the numbers of nonzeros and bytes."""
    nonzeros = size = 0
    start = time.perf_counter()
    for number, (text, entries) in enumerate(generator, 1):
        file.write(text)
        nonzeros += entries
        size += len(text)
        if progress:
            done = min(1.0, number * generator.block_rows / generator.rows)
            rate = size / 1e6 / max(time.perf_counter() - start, 1e-9)
            progress.write(f"\r{done:4.0%}  {size / 1e6:,.0f} MB  {rate:.0f} MB/s ")
            progress.flush()
    if progress:
        progress.write("\r\x1b[K")
    return nonzeros, size


def write_store(generator, path):
    """Writes all blocks to a store; returns the numbers of nonzeros and bytes."""
    from marginlinear import Store

    store = Store.write(map(generator.chunk, range(len(generator))), path)
    return store.nnz, sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))


def in_range(kind, low, high):
    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is outside {low}..{high}")
        return value

    return convert


def parser():
    p = argparse.ArgumentParser(prog="make_synthetic.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-o", "--output", default="-", metavar="PATH", help="file to write, - for standard output")
    p.add_argument("--shape", choices=SHAPES, default="free", help="defaults for the next five options")
    p.add_argument("--rows", type=in_range(int, 1, 2**40))
    p.add_argument("--features", type=in_range(int, 1, MAX_FEATURES), help="size of the dictionary")
    p.add_argument("--nonzeros", type=in_range(float, 1, MAX_FEATURES), help="mean nonzeros a row")
    p.add_argument("--zipf", type=in_range(float, 0, 3), help="exponent of word frequencies, 0: equal")
    p.add_argument("--values", choices=["tfidf", "binary", "uniform"])
    p.add_argument("--classes", type=in_range(int, 2, MAX_CLASSES), default=2)
    p.add_argument("--noise", type=in_range(float, 0, 100), default=0.2, help="label noise (default 0.2)")
    p.add_argument("--spread", type=in_range(float, 0, 3), default=0.5,
                   help="deviation of the logarithm of the row lengths (default 0.5)")
    p.add_argument("--digits", type=in_range(int, 1, 8), default=6, help="digits after the point (default 6)")
    p.add_argument("--seed", type=in_range(int, 0, 2**63 - 1), default=1)
    p.add_argument("--store", action="store_true", help="write a store of marginlinear, not text")
    p.add_argument("-q", "--quiet", action="store_true", help="no summary on standard error")
    return p


def main(argv=None):
    p = parser()
    args = p.parse_args(argv)
    for name, value in (DEFAULTS | SHAPES[args.shape]).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.nonzeros > args.features:
        p.error(f"--nonzeros {args.nonzeros:g} is more than --features {args.features}")
    if args.store and args.output == "-":
        p.error("--store needs the name of its folder: give -o")
    start = time.perf_counter()
    try:
        generator = Generator(args.rows, args.features, args.nonzeros, args.zipf, args.classes, args.values,
                              args.digits, args.noise, args.spread, args.seed)
    except ValueError as error:
        p.error(str(error))
    try:
        if args.store:
            nonzeros, size = write_store(generator, args.output)
        else:
            with output(args.output) as file:
                nonzeros, size = write(generator, file, sys.stderr if sys.stderr.isatty() else None)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader had enough (`| head`). What is left in the buffer must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"make_synthetic: error: {args.output}: {error.strerror or error}", file=sys.stderr)
        return 1
    if not args.quiet:
        seconds = time.perf_counter() - start
        print(f"{args.rows:,} rows, {args.features:,} features, {nonzeros:,} nonzeros, "
              f"{args.classes} classes, {size:,} bytes in {seconds:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
