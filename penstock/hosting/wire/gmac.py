"""GMAC, computed by the OpenSSL library that Python itself uses, through ctypes.

GMAC (NIST SP 800-38D) is the authentication of AES-GCM without its encryption. Processors have
instructions for it: one core computes several GB/s, about five times as much as with HMAC-SHA256.
Python's `hmac` does not offer it. It is not available in builds of Python that hide the symbols of
OpenSSL, or that have an OpenSSL before 3.0.

The calls keep Python's global lock. A tag of a megabyte takes 0.2 ms, and waiting for the lock again
would often take longer.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

TAG_BYTES: Final = 16
KEY_BYTES: Final = 16
_NONCE_BYTES: Final = 12


class _Param(ctypes.Structure):
    """OSSL_PARAM."""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("data_type", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_size_t),
        ("return_size", ctypes.c_size_t),
    )


def _buffer(part: Any) -> Any:
    """Return a view of memory that knows its address, also of read-only memory.

    pyarrow is imported here because the doctor's probes must run on executors without it.
    """
    import pyarrow as pa

    return pa.py_buffer(part)


@cache
def _library() -> tuple[Any, int] | None:
    """Return OpenSSL's libcrypto, as Python has loaded it, and its GMAC; None if it has none."""
    try:
        import _ssl

        library = ctypes.PyDLL(_ssl.__file__)
        pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        for name, result, arguments in (
            ("EVP_MAC_fetch", pointer, (pointer, text, text)),
            ("EVP_MAC_CTX_new", pointer, (pointer,)),
            ("EVP_MAC_CTX_free", None, (pointer,)),
            ("EVP_MAC_init", ctypes.c_int, (pointer, text, size, pointer)),
            ("EVP_MAC_update", ctypes.c_int, (pointer, pointer, size)),
            ("EVP_MAC_final", ctypes.c_int, (pointer, pointer, pointer, size)),
            ("OSSL_PARAM_construct_utf8_string", _Param, (text, pointer, size)),
            ("OSSL_PARAM_construct_octet_string", _Param, (text, pointer, size)),
            ("OSSL_PARAM_construct_end", _Param, ()),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        mac = library.EVP_MAC_fetch(None, b"GMAC", None)
    except (ImportError, OSError, AttributeError):
        return None
    return (library, mac) if mac else None


def is_available() -> bool:
    return _library() is not None


class Gmac:
    """Makes tags with one key. Only one thread at a time may use it."""

    def __init__(self, key: bytes) -> None:
        """`key`: 16 bytes that are used for nothing else. Raises RuntimeError if OpenSSL refuses it."""
        found = _library()
        if found is None or len(key) != KEY_BYTES:
            raise RuntimeError(f"GMAC needs OpenSSL 3 and a key of {KEY_BYTES} bytes")
        library, mac = found
        self._library = library
        self._nonce = (ctypes.c_char * _NONCE_BYTES)()
        self._tag = (ctypes.c_char * TAG_BYTES)()
        self._size = ctypes.c_size_t()
        self._to_size = ctypes.byref(self._size)
        cipher = ctypes.create_string_buffer(b"AES-128-GCM")
        nonce = library.OSSL_PARAM_construct_octet_string(b"iv", self._nonce, _NONCE_BYTES)
        end = library.OSSL_PARAM_construct_end()
        named = library.OSSL_PARAM_construct_utf8_string(b"cipher", cipher, 0)
        self._parameters = (_Param * 2)(nonce, end)
        self._context = library.EVP_MAC_CTX_new(mac)
        self._check(
            library.EVP_MAC_init(self._context, key, len(key), (_Param * 3)(named, nonce, end))
        )

    def begin(self, number: int) -> None:
        """Begin a message. `number`: 64 bits, never used twice with a key."""
        self._nonce.raw = number.to_bytes(_NONCE_BYTES, "big")
        self._check(self._library.EVP_MAC_init(self._context, None, 0, self._parameters))

    def update(self, part: Any) -> None:
        """Add what comes next in the message: a buffer."""
        if type(part) is bytes:
            self._check(self._library.EVP_MAC_update(self._context, part, len(part)))
        else:
            buffer = _buffer(part)
            done = self._library.EVP_MAC_update(self._context, buffer.address, buffer.size)
            self._check(done)

    def end(self) -> bytes:
        """Return the message's tag of 16 bytes."""
        done = self._library.EVP_MAC_final(self._context, self._tag, self._to_size, TAG_BYTES)
        self._check(done)
        return self._tag.raw

    def _check(self, done: int) -> None:
        if done != 1:
            raise RuntimeError("OpenSSL could not compute a GMAC")

    def __del__(self) -> None:
        context = getattr(self, "_context", None)
        if context:
            self._library.EVP_MAC_CTX_free(context)
