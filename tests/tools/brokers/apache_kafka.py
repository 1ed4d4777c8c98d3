"""Apache Kafka itself: one broker in KRaft mode, in a temporary directory, on loopback ports, ended with the tests."""

import base64
import contextlib
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.tools.small_servers import ServerMissing, free_port
from tests.tools.waiting import wait_until

JARS = sorted(Path(sys.prefix).glob("kafka-*"))
"""What `make kafka` has fetched."""
START_S = 60.0
CLUSTER_ID = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WAIT_S = 30


class KafkaBroker:
    """`servers`: where everybody may do everything. `kill`, then `start`: it is there again, with what is on its disk."""

    def __init__(
        self,
        folder: str,
        pem: str | None = None,
        users: Mapping[str, str] | None = None,
        controllers: Sequence[str] = (),
        node: int = 0,
    ) -> None:
        """`controllers`: of a cluster of several brokers, their addresses; this is number `node` of them. `users`: with their passwords, for `locked`: a second listener, with TLS, PLAIN and SCRAM, where they may do what
        `allow` says. `pem`: a file of its key and certificate.
        """
        self._folder = Path(folder)
        self.port = free_port()
        controllers = controllers or (f"127.0.0.1:{free_port()}",)
        self._copies = len(controllers)
        voters = ",".join(f"{number}@{at}" for number, at in enumerate(controllers))
        least = min(2, self._copies)
        self.servers = f"127.0.0.1:{self.port}"
        self._users = dict(users or {})
        self._process: subprocess.Popen[bytes] | None = None
        own = controllers[node]
        listeners = f"PLAINTEXT://{self.servers}"
        locks = []
        if self._users:
            self.locked = f"127.0.0.1:{free_port()}"
            listeners += f",SASL_SSL://{self.locked}"
            known = " ".join(f'user_{name}="{word}"' for name, word in self._users.items())
            locks = [
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users=User:ANONYMOUS",
                "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                f"listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN} required {known};",
                *(
                    f"listener.name.sasl_ssl.{one.lower()}.sasl.jaas.config={SCRAM} required;"
                    for one in ("SCRAM-SHA-256", "SCRAM-SHA-512")
                ),
                "ssl.keystore.type=PEM", f"ssl.keystore.location={pem}",
            ]  # fmt: skip
        (self._folder / "server.properties").write_text(
            "\n".join([
                "process.roles=broker,controller", f"node.id={node}",
                f"controller.quorum.voters={voters}", "controller.listener.names=CONTROLLER",
                f"listeners={listeners},CONTROLLER://{own}", f"advertised.listeners={listeners}",
                f"listener.security.protocol.map={PROTOCOLS}",
                f"log.dirs={self._folder}/data", "auto.create.topics.enable=false",
                f"offsets.topic.replication.factor={self._copies}",
                f"transaction.state.log.replication.factor={self._copies}",
                f"transaction.state.log.min.isr={least}", "offsets.topic.num.partitions=1",
                "transaction.state.log.num.partitions=1", "group.initial.rebalance.delay.ms=0",
                # After which the others elect leaders in place of one that was killed.
                f"broker.session.timeout.ms={3000 if self._copies > 1 else 9000}",
                # A segment that is deleted is gone at once, and retention is looked at each second.
                "log.segment.delete.delay.ms=100", "log.retention.check.interval.ms=1000",
                # Records of 1970 stay, unless their topic says how long.
                "log.retention.ms=-1",
                "log.cleaner.backoff.ms=200", "log.cleaner.min.cleanable.ratio=0.01",
                *locks, "",
            ])
        )  # fmt: skip
        # An id may begin with a dash.
        self._run(
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={CLUSTER_ID}",
            "-c",
            self._settings,
        )

    def start(self) -> None:
        """Until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        with self._log.open("ab") as log:
            command = [*self._java(), "kafka.Kafka", self._settings]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)

    def wait(self) -> None:
        """Until it answers."""
        wait_until(lambda: self._answers() or self._ended(), "no answer", START_S)
        if self._ended():
            raise ServerMissing(self._log.read_text())
        self._add_users()

    def kill(self) -> None:
        """As `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Its connections stay open, and nothing is answered until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Or add partitions to it. `settings`: of the topic, with __ for each dot."""
        config = {key.replace("__", "."): value for key, value in settings.items()}
        new = NewTopic(topic, partitions, self._copies, config=config)
        admin = self._admin()  # it ends with its last reference, and what it was asked with it
        try:
            admin.create_topics([new])[topic].result(WAIT_S)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
            admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WAIT_S)

    def allow(self, user: str, operation: str, kind: str, name: str = "kafka-cluster") -> None:
        """`operation` and `kind` as AclOperation and ResourceType name them; `name`: of the resource, or how it begins."""
        rule = AclBinding(
            ResourceType[kind], name, ResourcePatternType.PREFIXED, f"User:{user}", "*",
            AclOperation[operation], AclPermissionType.ALLOW,
        )  # fmt: skip
        admin = self._admin()
        admin.create_acls([rule])[rule].result(WAIT_S)

    def delete(self, *topics: str) -> None:
        """Until nobody sees them any more."""
        admin = self._admin()
        for done in admin.delete_topics([*topics]).values():
            done.result(WAIT_S)
        wait_until(lambda: not self._topics() & {*topics}, "they are there")

    def clear(self) -> None:
        """Delete all topics, and with them what groups have committed."""
        if topics := self._topics():
            self.delete(*topics)

    def groups(self) -> list[str]:
        """Those that have committed something."""
        found = self._admin().list_consumer_groups().result(WAIT_S).valid
        return [one.group_id for one in found]

    def offset(self, group: str, topic: str, partition: int = 0) -> int | None:
        """What the group has committed; None: nothing."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        admin = self._admin()
        (found,) = admin.list_consumer_group_offsets([asked])[group].result(WAIT_S).topic_partitions
        return found.offset if found.offset >= 0 else None

    def remove_records(self, places) -> None:
        """All below these TopicPartitions' offsets, as retention does."""
        admin = self._admin()
        for done in admin.delete_records(places).values():
            done.result(WAIT_S)

    @property
    def _settings(self) -> str:
        return str(self._folder / "server.properties")

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def _java(self) -> list[str]:
        if not JARS:
            raise ServerMissing(f"there is no kafka-* in {sys.prefix}. Run `make kafka`.")
        return [
            "java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", f"{JARS[-1]}/*",
        ]  # fmt: skip

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            [*self._java(), *command], check=False, cwd=self._folder, capture_output=True, text=True
        )
        if done.returncode:
            raise ServerMissing(done.stdout + done.stderr)

    def _topics(self) -> set[str]:
        """Without Kafka's own."""
        found = self._admin().list_topics(timeout=WAIT_S).topics
        return {name for name in found if not name.startswith("__")}

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _add_users(self) -> None:
        admin = self._admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            new = [
                UserScramCredentialUpsertion(
                    name, ScramCredentialInfo(mechanism, 4096), word.encode()
                )
                for name, word in self._users.items()
            ]
            for done in (admin.alter_user_scram_credentials(new) if new else {}).values():
                done.result(WAIT_S)

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _answers(self) -> bool:
        with contextlib.suppress(KafkaException):
            return bool(self._admin().list_topics(timeout=1).brokers)
        return False


@contextlib.contextmanager
def running_kafka(
    pem: str | None = None, users: Mapping[str, str] | None = None
) -> Generator[KafkaBroker]:
    """`pem`, `users`: as KafkaBroker has them."""
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder:
        server = KafkaBroker(folder, pem, users)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def running_kafka_cluster(count: int) -> Generator[list[KafkaBroker]]:
    """So many brokers, each with a copy of each partition."""
    controllers = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    with contextlib.ExitStack() as stack:
        nodes = []
        for number in range(count):
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=f"penstock-kafka{number}-")
            )
            nodes.append(KafkaBroker(folder, controllers=controllers, node=number))
            stack.callback(nodes[-1].kill)
        for one in nodes:
            one.launch()
        for one in nodes:
            one.wait()
        yield nodes
