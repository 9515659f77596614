"""The digest of model files."""

from importlib import import_module

# Bytes from which OpenSSL's code, some times faster, makes up for the time it takes to load.
LARGE = 1 << 18
# Where Pythons may have code of their own: from 3.12 on, before.
OWN = ("_sha2", "_sha256")


def sha256(size):
    """A new SHA-256 object for about `size` bytes."""
    for name in OWN if size < LARGE else ():
        try:
            return import_module(name).sha256()
        except ImportError:
            continue
    from hashlib import sha256

    return sha256()
