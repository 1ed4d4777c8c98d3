"""Errors as Flink's Java client reads them. The recorded stream was written by Flink 2.3.0 itself."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.rest.operations import serialized_throwable

WRITTEN_BY_FLINK = bytes.fromhex(
    "aced0005737200296f72672e6170616368652e666c696e6b2e7574696c2e53657269616c697a65645468726f77"
    "61626c6565169df51fa713f30200034c001966756c6c537472696e676966696564537461636b54726163657400"
    "124c6a6176612f6c616e672f537472696e673b4c00166f726967696e616c4572726f72436c6173734e616d6571"
    "007e00015b001373657269616c697a6564457863657074696f6e7400025b42787200136a6176612e6c616e672e"
    "457863657074696f6ed0fd1f3e1a3b1cc4020000787200136a6176612e6c616e672e5468726f7761626c65d5c6"
    "35273977b8cb0300044c000563617573657400154c6a6176612f6c616e672f5468726f7761626c653b4c000d64"
    "657461696c4d65737361676571007e00015b000a737461636b547261636574001e5b4c6a6176612f6c616e672f"
    "537461636b5472616365456c656d656e743b4c001473757070726573736564457863657074696f6e737400104c"
    "6a6176612f7574696c2f4c6973743b7870707400074d4553534147457572001e5b4c6a6176612e6c616e672e53"
    "7461636b5472616365456c656d656e743b02462a3c3cfd22390200007870000000007372001f6a6176612e7574"
    "696c2e436f6c6c656374696f6e7324456d7074794c6973747ab817b43ca79ede02000078707874000553544143"
    "4b740005434c41535370"
)
"""A SerializedThrowable whose message is MESSAGE, stack trace STACK and class CLASS."""


def test_the_bytes_are_those_of_flink():
    ours = base64.b64decode(serialized_throwable("MESSAGE", "CLASS"))
    assert ours == WRITTEN_BY_FLINK.replace(b"t\x00\x05STACK", b"t\x00\x07MESSAGE")


def test_characters_beyond_the_first_plane_are_two_units():
    """Java's modified UTF-8: surrogates on their own, and no zero byte."""
    ours = base64.b64decode(serialized_throwable("\0\U0001f600"))
    assert b"t\x00\x08\xc0\x80\xed\xa0\xbd\xed\xb8\x80" in ours


@given(st.text(max_size=50))
def test_any_text_can_be_written(text):
    assert base64.b64decode(serialized_throwable(text)).startswith(b"\xac\xed\x00\x05sr")


def test_a_long_text_is_cut_to_what_java_can_count():
    ours = base64.b64decode(serialized_throwable("\u00e9" * 70_000))
    assert b"t\xff\xfe\xc3\xa9" in ours
