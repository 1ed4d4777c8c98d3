"""HDFS and YARN themselves: one NameNode, DataNode, ResourceManager and NodeManager, in a sandbox and a temporary directory."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator, Mapping
from pathlib import Path

from tests.tools.clusters.sandbox import Sandbox, sandbox
from tests.tools.small_servers import ServerMissing, only_with_the_mark
from tests.tools.waiting import wait_until

JARS = sorted(Path(sys.prefix).glob("hadoop-*"))
"""What `make hadoop` has fetched."""
START_S = 120.0
OF_FILES = ("namenode", "datanode")
DAEMONS = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
STATE_STORE = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
QUEUES = ("default", "urgent")
SCHEDULER = "yarn.scheduler.capacity.root"
PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption"
FILES = "hdfs://127.0.0.1:9000"
LOG = """
log4j.rootLogger=INFO,all
log4j.appender.all=org.apache.log4j.ConsoleAppender
log4j.appender.all.layout=org.apache.log4j.PatternLayout
log4j.appender.all.layout.ConversionPattern=%d %p %c: %m%n
"""


class Hadoop:
    """`environment`: of clients, which run in `sandbox`."""

    def __init__(self, folder: Path, place: Sandbox) -> None:
        only_with_the_mark()
        if not JARS:
            raise ServerMissing(f"no folder hadoop-* is in {sys.prefix}. Run `make hadoop`.")
        self.sandbox = place
        self._folder = folder
        self._conf = folder / "conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._conf.mkdir()
        (self._conf / "log4j.properties").write_text(LOG)
        for name, settings in self._settings().items():
            properties = "".join(
                f"<property><name>{key}</name><value>{value}</value></property>"
                for key, value in settings.items()
            )
            (self._conf / name).write_text(f"<configuration>{properties}</configuration>")
        self.environment = {**os.environ, "HADOOP_CONF_DIR": str(self._conf)}

    def _settings(self) -> Mapping[str, Mapping[str, object]]:
        return {
            "core-site.xml": {"fs.defaultFS": FILES, "hadoop.tmp.dir": self._folder / "tmp"},
            "hdfs-site.xml": {
                "dfs.replication": 1,
                # Else a small file takes half a second to close.
                "dfs.namenode.file.close.num-committed-allowed": 1,
                # Else a NameNode stays in safe mode for half a minute.
                "dfs.namenode.safemode.extension": 0,
            },
            "yarn-site.xml": {
                "yarn.resourcemanager.hostname": "127.0.0.1",
                "yarn.nodemanager.hostname": "127.0.0.1",
                "yarn.nodemanager.bind-host": "127.0.0.1",
                # One that is started again is the same to the ResourceManager.
                "yarn.nodemanager.address": "127.0.0.1:45454",
                "yarn.resourcemanager.recovery.enabled": "true",
                "yarn.resourcemanager.store.class": STATE_STORE,
                "yarn.resourcemanager.fs.state-store.uri": f"file://{self._folder}/resourcemanager",
                "yarn.nodemanager.local-dirs": self._folder / "local",
                # A container's folder of logs has to be absolute.
                "yarn.nodemanager.log-dirs": self._folder / "logs",
                "yarn.log-aggregation-enable": "true",
                "yarn.nodemanager.resource.memory-mb": 8192,
                "yarn.nodemanager.resource.cpu-vcores": 8,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
                "yarn.scheduler.minimum-allocation-mb": 256,
                "yarn.resourcemanager.scheduler.monitor.enable": "true",
                f"{PREEMPTION}.monitoring_interval": 500,
                f"{PREEMPTION}.max_wait_before_kill": 1000,
                f"{PREEMPTION}.total_preemption_per_round": 1.0,
                f"{PREEMPTION}.natural_termination_factor": 1.0,
                # Else nobody looks how much memory a container has: a cgroup would have to.
                "yarn.nodemanager.resource.memory.enforced": "false",
                "yarn.nodemanager.container-monitor.interval-ms": 500,
            },
            "capacity-scheduler.xml": {
                "yarn.scheduler.capacity.root.queues": ",".join(QUEUES),
                # Each may have all that the other one does not use, and give it back when it does.
                **{f"{SCHEDULER}.{one}.capacity": 100 // len(QUEUES) for one in QUEUES},
                **{f"{SCHEDULER}.{one}.maximum-capacity": 100 for one in QUEUES},
                **{f"{SCHEDULER}.{one}.user-limit-factor": len(QUEUES) for one in QUEUES},
                # Of the memory for application masters; two run at a time.
                "yarn.scheduler.capacity.maximum-am-resource-percent": 0.5,
            },
        }

    def start(self, names: Collection[str]) -> None:
        """Until files can be written and containers be started. `names`: of daemons."""
        done = self.sandbox.run(
            *self._java("namenode"), "-format", "-nonInteractive", env=self.environment
        )
        if done.returncode:
            raise ServerMissing(done.stdout + done.stderr)
        for name in names:
            self.start_one(name)
        for name, ready in (("namenode", self._has_datanode), ("resourcemanager", self._has_node)):
            if name in names:
                wait_until(ready, f"the {name} waits for its node: {self._folder}", START_S)

    def start_one(self, name: str, *options: str) -> None:
        """`options`: -Dkey=value, other than in the files."""
        with (self._folder / f"{name}.log").open("ab") as log:
            self._daemons[name] = self.sandbox.start(
                *self._java(name), *options, env=self.environment, stdout=log, stderr=log
            )

    def restart(self, name: str, *options: str) -> None:
        """As after `kill -9`. `options`: as of `start_one`."""
        self.kill(name)
        self.start_one(name, *options)

    def kill(self, name: str) -> None:
        """As `kill -9`."""
        self.sandbox.run("pkill", "-KILL", "-f", DAEMONS[name])
        self._daemons[name].wait()

    def end(self) -> None:
        for name in self._daemons:
            self.kill(name)

    def administer(self, *order: str) -> bool:
        """Whether an order to the NameNode succeeds, as `-safemode wait`, which returns when files can be written."""
        done = self.sandbox.run(*self._java("dfsadmin"), *order, env=self.environment)
        return done.returncode == 0

    def _java(self, name: str) -> list[str]:
        where = f"{self._conf}:{JARS[-1]}/*"
        main = DAEMONS.get(name, "org.apache.hadoop.hdfs.tools.DFSAdmin")
        return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", where, main]

    def _has_datanode(self) -> bool:
        return b"Registered DN" in (self._folder / "namenode.log").read_bytes()

    def has_node_again(self) -> bool:
        """Whether the node has registered with a ResourceManager that was started again."""
        log = (self._folder / "resourcemanager.log").read_bytes()
        return b"Node Transitioned from NEW to RUNNING" in log.rpartition(b"STARTUP_MSG:")[2]

    def tool(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of the programs of Hadoop."""
        java = ("java", "-cp", f"{self._conf}:{JARS[-1]}/*", main_class)
        return self.sandbox.run(*java, *arguments, env=self.environment)

    def _has_node(self) -> bool:
        log = (self._folder / "resourcemanager.log").read_bytes()
        return b"Node Transitioned from NEW to RUNNING" in log


@contextlib.contextmanager
def hadoop(names: Collection[str] = tuple(DAEMONS)) -> Generator[Hadoop]:
    """`names`: of the daemons that run; `OF_FILES`: HDFS without YARN."""
    with sandbox() as place, tempfile.TemporaryDirectory(prefix="hadoop-") as folder:
        running = Hadoop(Path(folder), place)
        try:
            running.start(names)
            yield running
        finally:
            running.end()
