"""What a stranger may have put where a savepoint is looked at: it is refused in a sentence, runs nothing and removes nothing else."""

import json
import os
import struct
import zlib

import pytest

from penstock.engine.hosting.checkpoints.storage import (
    MAGIC,
    VERSION,
)
from penstock.ops.cli.cli import main

HEAD = struct.Struct("!HQI")
"""Version, bytes of the structure, checksum."""
OPERATOR = {
    "uid": "u", "name": "n", "parallelism": 1, "max_parallelism": 8, "is_fully_finished": False,
    "is_at_end": False, "coordinator": None, "subtasks": [],
}  # fmt: skip
SUBTASK = {"keyed": [], "lists": [], "inputs": [], "outputs": []}
WHOLE = {
    "checkpoint_id": 1, "job_id": "j", "type": "SAVEPOINT", "timestamp_ms": 7, "operators": [],
}  # fmt: skip


def metadata(body: bytes, inline: bytes = b"") -> bytes:
    """With the checksum that belongs to it, as a stranger makes it, too."""
    rest = body + inline
    return MAGIC + HEAD.pack(VERSION, len(body), zlib.crc32(rest)) + rest


def keyed(data: bytes, place=None):
    """The metadata of a savepoint with this keyed state. `place`: where it is said to be."""
    place = place or [None, 0, len(data), zlib.crc32(data)]
    subtask = SUBTASK | {"keyed": [[0, 7, [0] * 8, place]]}
    whole = WHOLE | {"operators": [OPERATOR | {"subtasks": [subtask]}]}
    return metadata(json.dumps(whole).encode(), data)


def chunk(header):
    text = json.dumps(header).encode()
    return len(text).to_bytes(4, "little") + text


def inspected(folder, capsys, *arguments):
    code = main(["savepoint", "inspect", str(folder), *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


PART = {"name": "state/x", "kind": "Value", "type": "INT", "ttl": None, "columns": 1,
        "key_groups": 8, "int32": False}  # fmt: skip
MALFORMED = {
    "deep": metadata(b"[" * 100_000 + b"]" * 100_000),
    "no object": metadata(b"7"),
    "no operators": metadata(b'{"checkpoint_id": 1}'),
    "time": metadata(json.dumps(WHOLE | {"timestamp_ms": 10**30}).encode()),
    "no key groups": metadata(
        json.dumps(WHOLE | {"operators": [OPERATOR | {"max_parallelism": 0}]}).encode()
    ),
    "place": keyed(b"", [None, -1, 5, 0]),
    "above": keyed(b"", ["../../../etc/passwd", 0, 5, 0]),
    "larger than memory": keyed(b"", ["_metadata", 0, 1 << 60, 0]),
    "device": keyed(b"", ["/dev/zero", 0, 1 << 60, 0]),
    "no chunk": keyed(b"\xff" * 50),
    "deep chunk": keyed((200_000).to_bytes(4, "little") + b"[" * 200_000),
    "columns": keyed(chunk({"version": 1, "parts": [PART | {"columns": 10**12}]})),
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_savepoint_is_refused_in_a_sentence(content, tmp_path, capsys):
    (tmp_path / "_metadata").write_bytes(content)
    code, out, told = inspected(tmp_path, capsys)
    assert (code, out) == (1, "")
    assert told.startswith("penstock: ")
    assert "Traceback" not in told


def test_a_pipe_in_the_place_of_the_metadata_keeps_nobody_waiting(tmp_path, capsys):
    os.mkfifo(tmp_path / "_metadata")
    code, _, told = inspected(tmp_path, capsys)
    assert code == 1
    assert "it is no regular file" in told


def test_a_large_file_that_is_no_metadata_is_not_read_into_memory(tmp_path, capsys):
    with (tmp_path / "_metadata").open("wb") as file:
        file.truncate(1 << 42)
    code, _, told = inspected(tmp_path, capsys)
    assert code == 1
    assert "is not the metadata of a checkpoint" in told


def test_names_in_a_savepoint_do_not_steer_the_terminal(tmp_path, capsys):
    named = WHOLE | {"operators": [OPERATOR | {"name": "\x1b[2J", "uid": "\x9b"}]}
    (tmp_path / "_metadata").write_bytes(metadata(json.dumps(named).encode()))
    code, out, _ = inspected(tmp_path, capsys)
    assert code == 0
    assert r"\u001b[2J  (uid \u009b)" in out


def test_what_lies_above_a_savepoint_is_not_removed_with_it(tmp_path, capsys):
    """In the folder of a job: `shared/..` is that folder."""
    folder = tmp_path / "job-1" / "chk-1"
    folder.mkdir(parents=True)
    (tmp_path / "job-1" / "shared").mkdir()
    other = tmp_path / "job-1" / "other"
    other.write_text("mine")
    place = [str(tmp_path / "job-1" / "shared" / ".."), 0, 0, 0]
    whole = json.loads(keyed(b"", place)[len(MAGIC) + HEAD.size :]) | {"job_id": "job-1"}
    (folder / "_metadata").write_bytes(metadata(json.dumps(whole).encode()))
    assert main(["savepoint", "dispose", str(folder)]) == 1
    assert other.read_text() == "mine"
