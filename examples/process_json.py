"""JSON lines in, JSON lines out: read by a declared type, changed, and written again.

python examples/process_json.py
"""

from penstock.common import Row, Types
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

LINES = [
    '{"id": 1, "name": "Flink", "tel": {"country": 49, "number": "123456"}}',
    '{"id": 2, "name": "hello", "tel": {"country": 86, "number": "2222"}}',
    "not JSON",
    '{"id": 3, "name": "world", "tel": null}',
]
PHONE = Types.ROW_NAMED(["country", "number"], [Types.INT(), Types.STRING()])
PERSON = Types.ROW_NAMED(["id", "name", "tel"], [Types.INT(), Types.STRING(), PHONE])
SHORT = Types.ROW_NAMED(["name", "tel"], [Types.STRING(), Types.STRING()])

READ = JsonRowDeserializationSchema.builder().type_info(PERSON).ignore_parse_errors().build()
WRITE = JsonRowSerializationSchema.builder().with_type_info(SHORT).build()


def parsed(line):
    person = READ.deserialize(line.encode())
    return [] if person is None else [person]


def shortened(person):
    phone = person.tel
    return Row(person.name.title(), None if phone is None else f"+{phone.country} {phone.number}")


def people(env: StreamExecutionEnvironment) -> DataStream:
    return (
        env
        .from_collection(LINES, Types.STRING())
        .flat_map(parsed, PERSON)
        .filter(lambda person: person.id != 2)
        .map(shortened, SHORT)
        .map(lambda person: WRITE.serialize(person).decode(), Types.STRING())
    )


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    people(environment).print()
    environment.execute("people")
