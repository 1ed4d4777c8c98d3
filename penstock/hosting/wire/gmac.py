"""GMAC by the OpenSSL library that Python itself uses, called through ctypes. `is_available` says whether it is there.

GMAC (NIST SP 800-38D) is the authentication of AES-GCM without its encryption. Processors have instructions for it: a core does
several GB/s, five times as many as HMAC-SHA256. Python's `hmac` does not offer it. Builds of Python that hide the symbols of OpenSSL,
or have one before 3.0, do not have it here.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

import pyarrow as pa

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


@cache
def _library() -> Any | None:
    """OpenSSL's libcrypto as Python has loaded it; None where it does not offer GMAC."""
    try:
        import _ssl

        library = ctypes.CDLL(_ssl.__file__)
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
        library.gmac = library.EVP_MAC_fetch(None, b"GMAC", None)
    except (ImportError, OSError, AttributeError):
        return None
    return library if library.gmac else None


def is_available() -> bool:
    return _library() is not None


class Gmac:
    """Tags under one key. Not for several threads at once."""

    def __init__(self, key: bytes) -> None:
        """Args: key: 16 bytes, used for nothing else. Raises: RuntimeError: OpenSSL does not take it."""
        library = _library()
        if library is None or len(key) != KEY_BYTES:
            raise RuntimeError(f"GMAC needs OpenSSL 3 and a key of {KEY_BYTES} bytes")
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
        self._context = library.EVP_MAC_CTX_new(library.gmac)
        self._check(
            library.EVP_MAC_init(self._context, key, len(key), (_Param * 3)(named, nonce, end))
        )

    def tag(self, number: int, parts: tuple[Any, ...]) -> bytes:
        """16 bytes. Args: number: 64 bits, never used again with this key. parts: bytes or other buffers, taken as one."""
        library, context = self._library, self._context
        self._nonce.raw = number.to_bytes(_NONCE_BYTES, "big")
        done = library.EVP_MAC_init(context, None, 0, self._parameters)
        for part in parts:
            buffer = pa.py_buffer(part)  # its address, also of memory that is read-only
            done &= library.EVP_MAC_update(context, buffer.address, buffer.size)
        self._check(done & library.EVP_MAC_final(context, self._tag, self._to_size, TAG_BYTES))
        return self._tag.raw

    def _check(self, done: int) -> None:
        if done != 1:
            raise RuntimeError("OpenSSL could not compute a GMAC")

    def __del__(self) -> None:
        context = getattr(self, "_context", None)
        if context:
            self._library.EVP_MAC_CTX_free(context)
