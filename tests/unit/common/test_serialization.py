"""Encoders of files. Expectations: Encoder's own docstring, and Python's codecs."""

import pytest

from penstock.common import Encoder


def test_a_text_that_the_charset_does_not_have_is_refused_with_its_record():
    rows = ["a", "cut \ud83d", "b"]
    with pytest.raises(ValueError, match=r"UTF-8: .*surrogates not allowed. The record: 'cut"):
        Encoder.simple_string_encoder().encode(rows, None)
    with pytest.raises(ValueError, match=r"latin-1: .*The record: '€'"):
        Encoder.simple_string_encoder("latin-1").encode(["a", "€"], None)
    assert Encoder.simple_string_encoder("latin-1").encode(["ä", "b"], None) == b"\xe4\nb\n"
