"""Avro messages that name their writer's schema by its id in a schema registry. Needs fastavro (`penstock[avro]`).

Source: Flink's org.apache.flink.formats.avro.registry.confluent; differs: generic records are dicts, there are no specific ones, and
`for_row` makes Rows. Not in PyFlink.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from penstock.common.extras import extra
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import RowTypeInfo, TypeInformation
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.setting_checks import check_whole
from penstock.engine.model.texts.bounded_text import bounded_repr
from penstock.formats.avro import AvroEncoder, AvroSchema, GenericRecordAvroTypeInfo
from penstock.formats.avro_records import RecordReader
from penstock.formats.avro_values import from_avro, type_info_of
from penstock.formats.registry.client import (
    MOST_SCHEMAS,
    RegisteredSchema,
    RegistryClient,
    SchemaRegistry,
    checked_subject,
    parted,
    prefix_of,
    refusing,
)

__all__ = [
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
]

Decode = Callable[[bytes], Any]


class ConfluentRegistryAvroDeserializationSchema(DeserializationSchema):
    """Turns a message with the id of its writer's schema into a record of the reader's schema.

    Make it with `for_generic` or `for_row`. A writer's schema is asked for when its id comes for the first time. Its records are resolved
    against the reader's schema by Avro's rules: fields by name, missing ones by their defaults. A message without a value gives no record.
    """

    def __init__(
        self,
        schema: AvroSchema,
        registry: SchemaRegistry,
        *,
        makes_rows: bool = False,
        identity_map_capacity: int = MOST_SCHEMAS,
    ) -> None:
        """Use `for_generic` or `for_row`."""
        self._schema = schema
        self._registry = registry
        self._makes_rows = makes_rows
        self._capacity = check_whole("identity_map_capacity", identity_map_capacity, 1)
        self._type = _type_of(schema, makes_rows=makes_rows)
        self._decoders: Callable[[int], Decode] | None = None
        self._client: RegistryClient | None = None

    @classmethod
    def for_generic(
        cls,
        schema: AvroSchema,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        identity_map_capacity: int = MOST_SCHEMAS,
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Return a schema of generic records, which are dicts.

        Args:
            schema: the reader's schema.
            url: the registry's address, `http://host:port` or `https://...`.
            registry_configs: properties of the registry's client, as `SchemaRegistry` takes them.
            identity_map_capacity: how many writers' schemas a task remembers.

        Raises ConfigurationError: the URL or a property is not known.
        """
        return cls(
            schema,
            SchemaRegistry(url, registry_configs),
            identity_map_capacity=identity_map_capacity,
        )

    @classmethod
    def for_row(
        cls,
        schema: AvroSchema,
        url: str,
        registry_configs: Mapping[str, Any] | None = None,
        identity_map_capacity: int = MOST_SCHEMAS,
    ) -> ConfluentRegistryAvroDeserializationSchema:
        """Return a schema of Rows with the fields of the reader's schema, a record. Arguments and errors as of `for_generic`."""
        return cls(
            schema,
            SchemaRegistry(url, registry_configs),
            makes_rows=True,
            identity_map_capacity=identity_map_capacity,
        )

    @property
    def produced_type(self) -> TypeInformation:
        """The type of the records: generic ones, or the ROW type of the schema."""
        return self._type

    def deserialize(self, data: bytes | None) -> Any:
        """Return the record; None for a message without a value.

        Raises:
            ValueError: the message is not in the wire format, the registry has no such schema, or the schemas do not fit.
            ExternalError: the registry does not answer, or refuses.
        """
        if data is None:
            return None
        schema_id, body = parted(data, "Avro")
        if self._decoders is None:
            self._decoders = lru_cache(self._capacity)(self._decoder)
        decode = self._decoders(schema_id)
        try:
            return decode(body)
        except Exception as error:  # fastavro raises many kinds of errors for bad bytes
            raise ValueError(
                f"a message cannot be read as Avro: {type(error).__name__}: {error}. Its writer's "
                f"schema has the id {schema_id} at {self._registry.url}. The reader's schema is "
                f"{bounded_repr(str(self._schema), 500)}. Message: {data[:200]!r}"
            ) from error

    def _decoder(self, schema_id: int) -> Decode:
        if self._client is None:
            self._client = RegistryClient(self._registry)
        found = self._client.with_id(schema_id)
        try:
            found.check_kind("AVRO")
            reader = RecordReader(_parsed(self._client, found), self._schema.with_values())
        except ValueError as error:
            return refusing(error)
        if not self._makes_rows:
            return reader.one
        convert = from_avro(self._schema.with_values())
        return lambda body: convert(reader.one(body))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": None, "_client": None}


class ConfluentRegistryAvroSerializationSchema(SerializationSchema):
    """Turns a record into a message with the id of its schema. Make it with `for_generic`.

    Each task registers the schema when its first record comes, and asks for nothing more.
    """

    def __init__(self, subject: str, schema: AvroSchema, registry: SchemaRegistry) -> None:
        """Use `for_generic`."""
        self._subject = checked_subject(type(self).__name__, subject)
        self._schema = schema
        self._registry = registry
        self._prefix: bytes | None = None
        self._encoder = AvroEncoder(
            schema,
            f"a record does not have the schema of the subject {self._subject!r}",
            f"The schema is {bounded_repr(str(schema), 500)}. ",
        )

    @classmethod
    def for_generic(
        cls,
        subject: str,
        schema: AvroSchema,
        schema_registry_url: str,
        registry_configs: Mapping[str, Any] | None = None,
    ) -> ConfluentRegistryAvroSerializationSchema:
        """Return a schema for records that are dicts, Rows or tuples.

        Args:
            subject: under which the schema is registered, by convention `<topic>-value`.
            schema: the writer's schema.
            schema_registry_url: the registry's address, `http://host:port` or `https://...`.
            registry_configs: properties of the registry's client, as `SchemaRegistry` takes them. With `auto.register.schemas` false the
                schema must be there.

        Raises ConfigurationError: the subject, the URL or a property is not known.
        """
        return cls(subject, schema, SchemaRegistry(schema_registry_url, registry_configs))

    def serialize(self, value: Any) -> bytes:
        """Return the message.

        Raises:
            ValueError: the record does not have the schema.
            ExternalError: the registry does not answer, or refuses.
        """
        if self._prefix is None:
            client = RegistryClient(self._registry)
            self._prefix = prefix_of(
                client.id_under(self._subject, RegisteredSchema(str(self._schema)))
            )
        made = io.BytesIO()
        made.write(self._prefix)
        self._encoder.write(made, value)
        return made.getvalue()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prefix": None}


def _type_of(schema: AvroSchema, *, makes_rows: bool) -> TypeInformation:
    if not makes_rows:
        return GenericRecordAvroTypeInfo(schema)
    found = type_info_of(schema.parsed())
    if not isinstance(found, RowTypeInfo):
        raise ConfigurationError(
            "ConfluentRegistryAvroDeserializationSchema.for_row: expected the schema of a record, "
            f"got {schema}, which is {found}. for_generic takes any schema."
        )
    return found


def _parsed(client: RegistryClient, schema: RegisteredSchema) -> Any:
    """The schema for fastavro, with those that it refers to. Raises: ValueError: it is none."""
    parse = extra("fastavro", "avro", "Avro").parse_schema
    named: dict[str, Any] = {}
    seen: set[tuple[str, int]] = set()

    def add(one: RegisteredSchema) -> Any:
        for reference in one.references:
            if (reference.subject, reference.version) not in seen:
                seen.add((reference.subject, reference.version))
                add(client.referred(reference))
        return parse(json.loads(one.text), named_schemas=named)

    try:
        return add(schema)
    except (
        ValueError,
        KeyError,
        TypeError,
        extra("fastavro.schema", "avro", "Avro").UnknownType,
    ) as error:
        raise ValueError(
            f"the writer's schema is no Avro schema: {type(error).__name__}: {error}. Got: "
            f"{schema.text[:200]!r}"
        ) from error
