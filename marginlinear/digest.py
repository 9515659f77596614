"""The digest of model files."""

# Bytes from which OpenSSL's code, some times faster, makes up for the time it takes to load.
LARGE = 1 << 18


def sha256(size):
    """A new SHA-256 object for about `size` bytes."""
    if size < LARGE:
        try:
            try:
                from _sha2 import sha256
            except ImportError:  # before Python 3.12
                from _sha256 import sha256
            return sha256()
        except ImportError:  # a Python built without its own
            pass
    from hashlib import sha256

    return sha256()
