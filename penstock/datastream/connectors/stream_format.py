"""What `FileSource.for_record_stream_format` takes. Source: pyflink.datastream.connectors.file_system.StreamFormat."""

from __future__ import annotations

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.formats.file_format import FileFormat
from penstock.datastream.formats.json_lines import JsonLinesFormat
from penstock.datastream.formats.text_lines import TextColumnFormat, TextLineFormat


class StreamFormat:
    """Formats that read records one after the other, under PyFlink's name."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8", *, as_columns: bool = False) -> FileFormat:
        r"""Lines without their end, `\n` or `\r\n`. Bytes that are no text become U+FFFD. `as_columns`: a column `value` of
        strings, of which no Python object is made unless a function asks for it. Not in PyFlink.
        """
        return TextColumnFormat(charset_name) if as_columns else TextLineFormat(charset_name)

    @staticmethod
    def json_lines_format(
        type_info: TypeInformation | None = None,
        charset_name: str = "UTF-8",
        *,
        timestamps: str | None = None,
    ) -> FileFormat:
        """A JSON value per line; with a ROW type, Rows with the fields of that name, as columns where their types allow it.
        `timestamps`: name of the LONG field that holds the records' timestamps in epoch ms. Not in PyFlink.
        """
        return JsonLinesFormat(type_info, charset_name, timestamps)
