"""One job of a campaign, in a process of its own, which may die: python -m tools.fuzz.worker STATE ORDER.

The input at work stands in the file STATE, so that what ends this process is known. A mutated input that reaches new
code, or an outcome that was not seen before, is mutated further. All follows from the seed: same seed, same inputs.
"""

import ctypes
import importlib
import json
import mmap
import os
import random
import re
import resource
import struct
import sys
import time
import traceback
from hashlib import sha256
from pathlib import Path

from tools.fuzz import build, text

CORPUS = Path(__file__).resolve().parent / "corpus"
LONGEST = 1 << 16  # bytes of an input
MANY = 20  # kinds of findings after which a campaign ends
# Address space of a process without a sanitizer, and by how much one input may raise the peak of its memory.
ADDRESSES, GROWTH, GROWTH_PER_BYTE = 4 << 30, 256 << 20, 1 << 12
PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")


class State:
    """The input at work and how many there were, in a file that two processes map."""

    HEAD = struct.Struct("<qq")

    def __init__(self, path):
        with open(path, "r+b") as stream:
            stream.truncate(self.HEAD.size + LONGEST)
            self.map = mmap.mmap(stream.fileno(), 0)

    def put(self, count, data):
        self.HEAD.pack_into(self.map, 0, count, len(data))
        self.map[self.HEAD.size : self.HEAD.size + len(data)] = data

    def get(self):
        count, size = self.HEAD.unpack_from(self.map)
        return count, self.map[self.HEAD.size : self.HEAD.size + size]


class Watch:
    """New edges of the compiled code, where watch.c is loaded: with a build that reports them."""

    def __init__(self, loaded):
        library = ctypes.PyDLL(None)
        self.begin = library.watch_begin if loaded else int
        self.novel = library.watch_novel if loaded else int


def kind_of(error):
    """What findings of one cause have in common: the exception's type and the innermost place in the library."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = [f for f in frames if "marginlinear" in Path(f.filename).parts or f.filename.endswith(".pyx")]
    frame = (inner or frames)[-1]
    return f"{type(error).__name__} in {Path(frame.filename).name}:{frame.name}: {text.shape_of(str(error))}"


def save(folder, target, kind, data, report):
    """Keep an input that found something; the path of the file."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{target}-{sha256(kind.encode()).hexdigest()[:8]}"
    path.write_bytes(data)
    path.with_suffix(".txt").write_text(f"{kind}\n\n{report}", "utf-8", "backslashreplace")
    return path


def seeds_of(target, name, corpus):
    """The target's own seeds, then what is kept in the repository, then in a folder of the user."""
    kept = [path.read_bytes() for folder in (CORPUS / name, *filter(None, [corpus and Path(corpus) / name]))
            if folder.is_dir() for path in sorted(folder.iterdir())]
    return [*target.seeds(), *kept]


class Job:
    def __init__(self, state, order, answer):
        self.name, self.order, self.state, self.answer = order["target"], order, State(state), answer
        self.target = importlib.import_module(f"tools.fuzz.{self.name}")
        self.watch = Watch(order["watch"])
        self.count, self.kept, self.findings, self.outcomes = order["done"], 0, set(), set()
        # Not of getrusage, which begins with that of the process that started this one.
        self.status = os.open("/proc/self/status", os.O_RDONLY)
        self.peak = self.peak_now()

    def run(self):
        order, pool, rng = self.order, [], random.Random(self.order["seed"])
        end = time.monotonic() + order["seconds"]
        if order["given"]:
            for path in order["given"]:
                self.one(Path(path).read_bytes())
        else:
            pool = seeds_of(self.target, self.name, order["corpus"])
            rng.shuffle(pool)
        first = iter(pool)
        while self.count < order["inputs"] and time.monotonic() < end and len(self.findings) < MANY:
            if (data := next(first, None)) is not None:
                self.one(data)
                continue
            # What was new last is most worth a look.
            parent = rng.choice(pool[-16:]) if rng.random() < 0.25 else rng.choice(pool)
            data = self.target.mutate(rng, parent, rng.choice(pool))[:LONGEST]
            if self.one(data):
                pool.append(data)
                self.keep(data)
        self.tell(kept=self.kept)

    def one(self, data):
        """Check an input; whether it is new in any way."""
        self.count += 1
        self.state.put(self.count, data)
        self.watch.begin()
        try:
            outcome = self.target.check(data)
            self.look_at_memory(data)
        except Exception as error:
            self.watch.novel()
            kind = kind_of(error)
            if kind not in self.findings:
                self.findings.add(kind)
                path = save(self.order["findings"], self.name, kind, data, traceback.format_exc())
                self.tell(findings={kind: str(path)})
            return False
        novel = self.watch.novel() > 0
        if outcome not in self.outcomes:
            self.outcomes.add(outcome)
            novel = True
        return novel

    def tell(self, **what):
        """At once: this process may not come to its end."""
        os.write(self.answer, json.dumps(what).encode() + b"\n")

    def look_at_memory(self, data):
        before, self.peak = self.peak, self.peak_now()
        growth = self.peak - before
        if growth > GROWTH + GROWTH_PER_BYTE * len(data):
            raise MemoryError(f"{growth >> 20} MiB for an input of {len(data)} bytes")

    def peak_now(self):
        """The most memory that this process has had so far, in bytes."""
        return int(PEAK.search(os.pread(self.status, 4096, 0))[1]) << 10

    def keep(self, data):
        self.kept += 1
        if self.order["corpus"]:
            folder = Path(self.order["corpus"]) / self.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / sha256(data).hexdigest()[:16]).write_bytes(data)


def main(state, order):
    order = json.loads(order)
    if order["sanitize"]:
        import marginlinear

        # Another build would be tried in silence.
        assert Path(marginlinear.__file__).parents[1] == build.BUILDS / order["sanitize"], marginlinear.__file__
    else:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    answer = os.dup(1)
    os.dup2(2, 1)  # what a target prints by mistake is not the answer
    Job(state, order, answer).run()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
