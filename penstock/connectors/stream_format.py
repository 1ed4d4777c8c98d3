"""The formats that `FileSource.for_record_stream_format` takes. Source:
pyflink.datastream.connectors.file_system.StreamFormat.
"""

from __future__ import annotations

from penstock.common.typeinfo import TypeInformation
from penstock.formats.file_format import FileFormat
from penstock.formats.json_lines import JsonLinesFormat
from penstock.formats.text_lines import TextColumnFormat, TextLineFormat


class StreamFormat:
    """Creates formats for `FileSource.for_record_stream_format`."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8", *, as_columns: bool = False) -> FileFormat:
        """Return a format of lines, without their end.

        Args:
            charset_name: the encoding; bytes that are not text become U+FFFD.
            as_columns: gives a column `value` of strings, without a Python object per line. Not in
                PyFlink.
        """
        return TextColumnFormat(charset_name) if as_columns else TextLineFormat(charset_name)

    @staticmethod
    def json_lines_format(
        type_info: TypeInformation | None = None,
        charset_name: str = "UTF-8",
        *,
        timestamps: str | None = None,
    ) -> FileFormat:
        """Return a format with one JSON value per line. Not in PyFlink.

        Args:
            type_info: a ROW type: lines become Rows with its fields, as columns if the types allow
                it.
            charset_name: the encoding.
            timestamps: the LONG field with each record's event time in epoch ms.
        """
        return JsonLinesFormat(type_info, charset_name, timestamps)
