"""What the NameNode says is one line, with the server; the rest is tried on HDFS itself: tests/spark/clusters/test_hdfs.py."""

import socket

import pytest
from hdfs_native import Client

from penstock.engine.hosting.os import hdfs_files
from penstock.engine.hosting.os.hdfs_files import hdfs

STACK = r"\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.start(FSNamesystem.java:1)\n"


def rpc(name, text):
    return RuntimeError(f'RPCError("org.apache.hadoop.{name}", "{text}{STACK}")')


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            rpc(
                "hdfs.server.namenode.SafeModeException",
                "Cannot create file/x. It is in safe mode.",
            ),
            OSError,
            "hdfs://host:8020: Cannot create file/x. It is in safe mode.",
        ),
        (
            rpc("security.AccessControlException", r"Permission denied: inode=\"/a\":root"),
            PermissionError,
            'hdfs://host:8020: Permission denied: inode="/a":root',
        ),
        (OSError("Connection refused"), OSError, "hdfs://host:8020: Connection refused"),
        (RuntimeError('DataTransferError("short")'), OSError, "hdfs://host:8020: short"),
        (FileExistsError("/a exists\n\tat org.apache"), FileExistsError, "/a exists"),
    ],
)
def test_errors_are_a_line_of_a_kind_that_callers_know(error, kind, said, monkeypatch):
    def fail(_client, _path, _permission, _has_parents):
        raise error

    system, path = hdfs("hdfs://host:8020/a", is_private=True)
    monkeypatch.setattr(Client, "mkdirs", fail)
    with pytest.raises(OSError) as raised:
        system.create_dir(path)
    assert type(raised.value) is kind
    assert str(raised.value) == said


def test_a_server_that_is_paused_is_left(monkeypatch):
    monkeypatch.setattr(hdfs_files, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as paused:
        address = f"hdfs://127.0.0.1:{paused.getsockname()[1]}"
        system, path = hdfs(f"{address}/a", is_private=True)
        with pytest.raises(OSError, match=rf"{address}: no answer within 0\.1 s\."):
            system.get_file_info(path)


def test_a_server_without_port_that_no_configuration_knows_is_said(monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(
        OSError, match="Write the NameNode's port, such as 8020, or set HADOOP_CONF"
    ):
        hdfs("hdfs://host/checkpoints", is_private=True)
