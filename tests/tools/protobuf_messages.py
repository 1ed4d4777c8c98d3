"""Classes of Protobuf messages from the texts of their definitions, made by Google's compiler."""

import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

INCLUDED = Path(protoc.__file__).parent / "_proto"


def compiled(files):
    """The descriptors of these files (name: text) and of all that they import, in order."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        made = Path(folder, "made")
        status = protoc.main([
            "protoc", f"-I{folder}", f"-I{INCLUDED}", "--include_imports",
            f"--descriptor_set_out={made}", *files,
        ])  # fmt: skip
        assert status == 0
        return descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file


def classes(files, *names):
    """The classes of these messages."""
    pool = DescriptorPool()
    for file in compiled(files):
        pool.Add(file)
    return [GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]
