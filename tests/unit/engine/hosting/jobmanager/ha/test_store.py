"""The laws of stores, kept by each: a directory, and documents in each place that has them."""

import pytest

from penstock.engine.hosting.jobmanager.ha.document_store import DocumentJobStore, ObjectDocuments
from penstock.engine.hosting.jobmanager.ha.settings import ZookeeperSettings, make_private
from penstock.engine.hosting.jobmanager.ha.store import FileJobStore
from penstock.engine.hosting.jobmanager.ha.zookeeper import ZookeeperDocuments
from penstock.engine.hosting.os.s3_objects import s3_objects
from tests.tools.hosting.documents import MemoryDocuments
from tests.tools.hosting.store_laws import *  # noqa: F403


@pytest.fixture(
    params=["file", "memory", "s3", pytest.param("zookeeper", marks=pytest.mark.server)]
)
def store(request, tmp_path):
    root = tmp_path / "cluster"
    make_private(str(root), b"")
    if request.param == "file":
        yield FileJobStore(root)
        return
    documents = MemoryDocuments()
    if request.param == "s3":
        uri = request.getfixturevalue("object_store").uri("ha")
        documents = ObjectDocuments(s3_objects(uri, 10), "bucket/ha/cluster")
    if request.param == "zookeeper":
        quorum = request.getfixturevalue("zookeeper").quorum
        documents = ZookeeperDocuments(
            ZookeeperSettings(quorum, f"/{tmp_path.name}", 5000, 5000, 5000)
        )
    made = DocumentJobStore(documents, str(root))
    yield made
    made.close()
