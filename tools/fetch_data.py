#!/usr/bin/env python3
"""Downloads data sets of the LIBSVM site: resumable, checksummed, with a progress bar.

    tools/fetch_data.py --list                      # the names known here
    tools/fetch_data.py rcv1.binary sector -o sets  # every file of these sets
    tools/fetch_data.py binary/some_new_set.bz2     # any other file, by its folder and name on the site
    tools/fetch_data.py a9a --checksums sums.txt    # refuse what differs from a list that you trust

An interrupted download stays beside its target as FILE.part and goes on where it stopped, provided that the
server says that the file is still the same (ETag or Last-Modified); otherwise it starts anew. FILE appears
only when whole.

The site publishes no checksums. So the SHA-256 of a first download is written to SHA256SUMS in the folder
(`sha256sum -c SHA256SUMS` reads it), and whatever is fetched or found there later must agree with it, with
--checksums and with --sha256. Nothing is decompressed: marginlinear reads .bz2 and .xz.

Exit status: 0 done, 1 a download failed or a checksum differs, 2 usage, 130 interrupted.
"""

import argparse
import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

BASE_URL = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/"
BASE_URL_VARIABLE = "MARGINLINEAR_DATA_URL"
SUMS = "SHA256SUMS"
CHUNK = 1 << 18

# Name -> files on the site, by folder and name. A file that is not here can be given that way too.
SETS = {
    "a9a": "binary/a9a binary/a9a.t",
    "australian": "binary/australian_scale",
    "cod-rna": "binary/cod-rna binary/cod-rna.t",
    "covtype.binary": "binary/covtype.libsvm.binary.scale.bz2",
    "epsilon": "binary/epsilon_normalized.bz2 binary/epsilon_normalized.t.bz2",
    "german.numer": "binary/german.numer_scale",
    "gisette": "binary/gisette_scale.bz2 binary/gisette_scale.t.bz2",
    "heart": "binary/heart_scale",
    "ijcnn1": "binary/ijcnn1.bz2 binary/ijcnn1.t.bz2",
    "kdda": "binary/kdda.bz2 binary/kdda.t.bz2",
    "kddb": "binary/kddb.bz2 binary/kddb.t.bz2",
    "news20.binary": "binary/news20.binary.bz2",
    "phishing": "binary/phishing",
    "rcv1.binary": "binary/rcv1_train.binary.bz2 binary/rcv1_test.binary.bz2",
    "real-sim": "binary/real-sim.bz2",
    "splice": "binary/splice binary/splice.t",
    "svmguide1": "binary/svmguide1 binary/svmguide1.t",
    "url": "binary/url_combined.bz2",
    "w8a": "binary/w8a binary/w8a.t",
    "webspam.unigram": "binary/webspam_wc_normalized_unigram.svm.xz",
    "aloi": "multiclass/aloi.scale.bz2",
    "connect-4": "multiclass/connect-4",
    "covtype": "multiclass/covtype.scale.bz2",
    "dna": "multiclass/dna.scale multiclass/dna.scale.t",
    "glass": "multiclass/glass.scale",
    "iris": "multiclass/iris.scale",
    "letter": "multiclass/letter.scale multiclass/letter.scale.t",
    "mnist": "multiclass/mnist.bz2 multiclass/mnist.t.bz2",
    "news20": "multiclass/news20.scale.bz2 multiclass/news20.t.scale.bz2",
    "pendigits": "multiclass/pendigits multiclass/pendigits.t",
    "poker": "multiclass/poker.bz2 multiclass/poker.t.bz2",
    "protein": "multiclass/protein.bz2 multiclass/protein.t.bz2",
    "rcv1.multiclass": "multiclass/rcv1_train.multiclass.bz2 multiclass/rcv1_test.multiclass.bz2",
    "satimage": "multiclass/satimage.scale multiclass/satimage.scale.t",
    "sector": "multiclass/sector/sector.scale.bz2 multiclass/sector/sector.t.scale.bz2",
    "segment": "multiclass/segment.scale",
    "shuttle": "multiclass/shuttle.scale multiclass/shuttle.scale.t",
    "usps": "multiclass/usps.bz2 multiclass/usps.t.bz2",
    "vehicle": "multiclass/vehicle.scale",
    "vowel": "multiclass/vowel.scale multiclass/vowel.scale.t",
    "wine": "multiclass/wine.scale",
}


class FetchError(Exception):
    """The download of one file failed for good; the text says why and what to do."""


class Broken(Exception):
    """The connection or the server failed in a way that another try may mend."""

    def __init__(self, reason, wait=None):
        super().__init__(reason)
        self.wait = wait


class Progress:
    """A bar on standard error, on a terminal only."""

    def __init__(self, name, stream=None):
        self.name, self.stream = name, stream or sys.stderr
        self.shown = self.stream.isatty()
        self.start, self.first, self.last = time.monotonic(), None, 0.0

    def update(self, done, total):
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if not self.shown or now - self.last < 0.1:
            return
        self.last = now
        rate = (done - self.first) / 1e6 / max(now - self.start, 1e-9)
        if total:
            filled = int(30 * done / total)
            bar = f"[{'#' * filled}{' ' * (30 - filled)}] {done / total:4.0%} of {total / 1e6:,.1f} MB"
        else:
            bar = f"{done / 1e6:,.1f} MB"
        columns = shutil.get_terminal_size().columns
        self.stream.write("\r" + f"{self.name} {bar}  {rate:.1f} MB/s"[: columns - 1] + "\x1b[K")
        self.stream.flush()

    def close(self):
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def read_sums(path):
    """{file name: hash} of a list in the format of sha256sum; folders before the names are dropped."""
    sums = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line)
        if not match:
            raise FetchError(f"{path}:{number}: expected 64 hexadecimal digits, two blanks and a file name")
        name = match[2].rsplit("/", 1)[-1]
        if sums.setdefault(name, match[1].lower()) != match[1].lower():
            raise FetchError(f"{path}:{number}: a second, different checksum for {name}")
    return sums


def replace_text(path, text):
    """Writes a small file so that a crash leaves the old or the new one."""
    part = path.with_name(path.name + ".new")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def record(folder, name, digest):
    path = folder / SUMS
    sums = read_sums(path) if path.exists() else {}
    if sums.get(name) != digest:
        sums[name] = digest
        replace_text(path, "".join(f"{sums[key]}  {key}\n" for key in sorted(sums)))


def check(path, name, expected):
    """Hash of the file, after comparison with all that is known of it: [(hash, where it stands)]."""
    digest = sha256(path)
    for known, source in expected:
        if known != digest:
            raise FetchError(f"{name}: SHA-256 is {digest}, but {source} says {known}")
    return digest


class Download:
    """One file on its way: FILE.part holds what has come, FILE.part.json what it is a part of."""

    def __init__(self, url, target, timeout):
        self.url, self.target, self.timeout = url, target, timeout
        self.part = target.with_name(target.name + ".part")
        self.note = target.with_name(target.name + ".part.json")

    def discard(self):
        for path in (self.part, self.note):
            path.unlink(missing_ok=True)

    def resume_from(self):
        """(bytes present, validator), or (0, None) where they may belong to an older file."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            size = self.part.stat().st_size
        except (FileNotFoundError, json.JSONDecodeError):
            return 0, None
        if size == 0 or note["url"] != self.url or not note["validator"]:
            return 0, None
        return size, note["validator"]

    def attempt(self, progress):
        """One request. Returns when the part is whole; raises Broken or FetchError otherwise."""
        offset, validator = self.resume_from()
        # The size of the file is taken from the answer, so the body must come as it is stored.
        headers = {"User-Agent": "marginlinear-fetch-data", "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            headers["If-Range"] = validator
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers),
                                        timeout=self.timeout) as answer:
                self.receive(answer, offset, progress)
        except urllib.error.HTTPError as error:
            self.refused(error)
        except urllib.error.URLError as error:
            raise Broken(f"{self.url}: {error.reason}") from error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise Broken(f"{self.url}: {error or type(error).__name__}") from error

    def refused(self, error):
        reason = f"{self.url}: the server answers {error.code} {error.reason}"
        if error.code == 416:
            # The part is not shorter than the file: it cannot be its beginning.
            self.discard()
            raise Broken(reason) from error
        if error.code in (408, 429) or error.code >= 500:
            wait = error.headers.get("Retry-After", "")
            raise Broken(reason, float(wait) if wait.isdecimal() else None) from error
        hint = "; is it still on the site? See --list, --base-url" if error.code in (404, 410) else ""
        raise FetchError(reason + hint) from error

    def receive(self, answer, offset, progress):
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        if answer.status == 206:
            match = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+|\*)", answer.headers.get("Content-Range", ""))
            if not match or int(match[1]) != offset:
                self.discard()
                raise Broken(f"{self.url}: the server sent another range than asked for")
            total = int(match[2]) + 1 if match[3] == "*" else int(match[3])
        else:
            # The server ignores ranges, or the file has changed: what is here belongs to nothing.
            offset = 0
        etag = answer.headers.get("ETag", "")
        # If-Range takes no weak validator.
        validator = answer.headers.get("Last-Modified") if etag.startswith("W/") or not etag else etag
        if offset == 0:
            self.discard()
            self.note.write_text(json.dumps({"url": self.url, "validator": validator}), encoding="utf-8")
        done = offset
        with open(self.part, "ab" if offset else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress.update(done, total)
            file.flush()
            os.fsync(file.fileno())
        if total is not None and done != total:
            if done > total:
                self.discard()
            raise Broken(f"{self.url}: the connection ended after {done:,} of {total:,} bytes")
        modified = email.utils.parsedate_tz(answer.headers.get("Last-Modified", ""))
        if modified:
            stamp = email.utils.mktime_tz(modified)
            os.utime(self.part, (stamp, stamp))


def fetch(url, folder, expected, retries, backoff, timeout):
    """Brings one file into the folder, its checksum into SHA256SUMS; returns a line on what was done."""
    name = urllib.parse.unquote(url.rsplit("/", 1)[-1])
    target = folder / name
    sums = folder / SUMS
    if sums.exists() and name in (known := read_sums(sums)):
        expected = [*expected, (known[name], str(sums))]
    if target.exists():
        try:
            digest = check(target, name, expected)
        except FetchError as error:
            raise FetchError(f"{error}; delete {target} to fetch it again") from error
        record(folder, name, digest)
        return f"{name}: already here, {'checksum agrees' if expected else 'checksum recorded'}"
    download = Download(url, target, timeout)
    progress = Progress(name)
    try:
        failures = furthest = 0
        while True:
            try:
                download.attempt(progress)
                break
            except Broken as error:
                # A large file over a poor line may break often: only tries that brought nothing new count.
                reached = download.part.stat().st_size if download.part.exists() else 0
                failures = 1 if reached > furthest else failures + 1
                furthest = max(reached, furthest)
                if failures > retries:
                    raise FetchError(f"{error}; given up after {failures} tries without progress, "
                                     f"the same command goes on from here") from error
                wait = error.wait if error.wait is not None else backoff * 2 ** (failures - 1)
                progress.close()
                print(f"fetch_data: {error}; again in {wait:g} s", file=sys.stderr)
                time.sleep(wait)
    finally:
        progress.close()
    try:
        digest = check(download.part, name, expected)
    except FetchError as error:
        download.discard()
        raise FetchError(f"{error}; the download has been deleted") from error
    size = download.part.stat().st_size
    os.replace(download.part, target)
    download.note.unlink(missing_ok=True)
    record(folder, name, digest)
    return f"{name}: {size:,} bytes, {'checksum agrees' if expected else 'checksum recorded in ' + SUMS}"


def files_of(name):
    if name in SETS:
        return SETS[name].split()
    by_file = {path.rsplit("/", 1)[-1]: path for files in SETS.values() for path in files.split()}
    if name in by_file:
        return [by_file[name]]
    if re.fullmatch(r"[\w.+-]+(/[\w.+-]+)+", name) and ".." not in name.split("/"):
        return [name]
    raise ValueError(f"unknown data set {name!r}: see --list, or give FOLDER/FILE as on the site")


def parser():
    p = argparse.ArgumentParser(prog="fetch_data.py", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME", help="a set of --list, a file of one, or FOLDER/FILE")
    p.add_argument("--list", action="store_true", help="print the known sets and their files")
    p.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    p.add_argument("--base-url", default=os.environ.get(BASE_URL_VARIABLE, BASE_URL),
                   help=f"default: ${BASE_URL_VARIABLE}, else {BASE_URL}")
    p.add_argument("--sha256", metavar="HEX", help="what the file must have; for a single file")
    p.add_argument("--checksums", type=Path, metavar="FILE",
                   help="list in the format of sha256sum; every file fetched must stand in it")
    p.add_argument("--retries", type=int, default=5, metavar="N",
                   help="further tries after one that brought nothing new (default 5)")
    p.add_argument("--backoff", type=float, default=1.0, metavar="S",
                   help="seconds before the second try, doubled each time (default 1)")
    p.add_argument("--timeout", type=float, default=60.0, metavar="S", help="of a connection that is silent")
    return p


def main(argv=None):
    p = parser()
    args = p.parse_args(argv)
    if args.list:
        for name, files in SETS.items():
            print(f"{name:18}{files}")
        return 0
    if not args.names:
        p.error("name at least one data set; --list shows them")
    try:
        paths = list(dict.fromkeys(path for name in args.names for path in files_of(name)))
    except ValueError as error:
        p.error(str(error))
    if args.retries < 0 or args.backoff < 0 or args.timeout <= 0:
        p.error("--retries and --backoff must not be negative, --timeout must be positive")
    if args.sha256 is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", args.sha256):
            p.error("--sha256 takes 64 hexadecimal digits")
        if len(paths) > 1:
            p.error(f"--sha256 is for one file, but {len(paths)} are to be fetched: {' '.join(paths)}")
    if not args.base_url.startswith(("http://", "https://")):
        p.error(f"--base-url {args.base_url!r} does not start with http:// or https://")
    failed = False
    try:
        trusted = read_sums(args.checksums) if args.checksums else None
        args.output.mkdir(parents=True, exist_ok=True)
        for path in paths:
            try:
                name = path.rsplit("/", 1)[-1]
                expected = [(args.sha256.lower(), "--sha256")] if args.sha256 else []
                if trusted is not None:
                    if name not in trusted:
                        raise FetchError(f"{name}: not in {args.checksums}, not fetched")
                    expected.append((trusted[name], str(args.checksums)))
                url = args.base_url.rstrip("/") + "/" + urllib.parse.quote(path)
                print(fetch(url, args.output, expected, args.retries, args.backoff, args.timeout), flush=True)
            except FetchError as error:
                # The other files can still be had.
                failed = True
                print(f"fetch_data: error: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("fetch_data: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except FetchError as error:
        print(f"fetch_data: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        place = error.filename or args.output
        print(f"fetch_data: error: {place}: {error.strerror or error}", file=sys.stderr)
        return 1
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
