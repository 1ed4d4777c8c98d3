"""Kubernetes itself: etcd, API server, controllers, scheduler and DNS in a sandbox; each node has a network
namespace, a containerd and a kubelet of its own.

All pods share one network of layer 2: each node's bridge is joined to the first one, which is their
gateway and has the API server's address. There is no kube-proxy: services are headless.
"""

import contextlib
import itertools
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.tools.certificates import Authority
from tests.tools.clusters.sandbox import Sandbox, sandbox
from tests.tools.small_servers import ServerMissing, only_with_the_mark
from tests.tools.waiting import wait_until

BUILT = sorted(Path(sys.prefix).glob("kubernetes-*"))
"""What `make kubernetes` has built: programs, and images."""
START_S: Final = 60.0
HOST: Final = "10.88.0.1"
SERVICE: Final = "10.96.0.1"
IMAGES: Final = ("pause", "penstock")
CGROUPS: Final = Path("/sys/fs/cgroup")
NODE = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: false}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: AlwaysAllow}}  # To whoever has a certificate: the API server.
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
clusterDNS: [{host}]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://{socket}
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
failSwapOn: false
localStorageCapacityIsolation: false
nodeStatusUpdateFrequency: 2s
podLogsDir: {logs}  # A kubelet removes what is of no pod of its node.
resolvConf: ""
imageGCHighThresholdPercent: 100
"""
CONTAINERD = """
version = 2
root = "{root}"
state = "{state}"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:latest"
restrict_oom_score_adj = true  # A machine without CAP_SYS_RESOURCE refuses lower scores.
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{state}"
"""
ROOM: Final = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "type": "bridge",
    "bridge": "pods",
    "hairpinMode": True,
}
NAMES = """
.:53 {{
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "it"}],
    "users": [{"name": "admin"}],
    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
    "current-context": "it",
}


class Kubernetes:
    """`environment`: of clients, which run in `sandbox`."""

    def __init__(self, folder: Path, place: Sandbox) -> None:
        only_with_the_mark()
        if not BUILT:
            raise ServerMissing(f"no folder kubernetes-* is in {sys.prefix}: `make kubernetes`.")
        self.sandbox = place
        self.built = BUILT[-1]
        self._folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._authority = Authority(folder, "ca")
        self._token = secrets.token_hex(16)
        kubeconfig = folder / "kubeconfig"
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{self.built / 'bin'}:{os.environ['PATH']}",
        }
        it = {"server": f"https://{HOST}", "certificate-authority": self._authority.ca}
        KUBECONFIG["clusters"][0]["cluster"] = it
        KUBECONFIG["users"][0]["user"] = {"token": self._token}
        kubeconfig.write_text(json.dumps(KUBECONFIG))
        self._kubeconfig = kubeconfig
        self._cgroup = f"penstock-{os.getpid()}"
        self._numbers = itertools.count(1)

    def start(self, nodes: int) -> None:
        """Until pods can be started on each node."""
        self._bring_up_network()
        self._start_control_plane()
        for _ in range(nodes):
            self.start_node()

    def kubectl(self, *words: str, **more: Any) -> str:
        """What it prints. Raises AssertionError with its errors."""
        done = self.sandbox.run("kubectl", *words, env=self.environment, **more)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _succeeds(self, *words: str) -> bool:
        return self.sandbox.run(*words, env=self.environment).returncode == 0

    def _wait(self, otherwise: str, is_so: Callable[[], bool]) -> None:
        """Raises ServerMissing: a program has ended. AssertionError: it takes too long."""

        def is_done() -> bool:
            for name, process in self._daemons.items():
                if process.poll() is not None:
                    log = (self._folder / f"{name}.log").read_text()[-2000:]
                    raise ServerMissing(f"{name} has ended: {log}")
            return is_so()

        wait_until(is_done, otherwise, START_S)

    def _must(self, *words: str) -> None:
        done = self.sandbox.run(*words, env=self.environment)
        if done.returncode:
            raise ServerMissing(f"{' '.join(words)}: {done.stdout}{done.stderr}")

    def _bring_up_network(self) -> None:
        script = f"""
        mount --make-rshared /
        mkdir -p /var/lib/cni
        for own in /run /var/log /var/lib/cni; do mount -t tmpfs own $own; done
        echo 1 > /proc/sys/net/ipv4/ip_forward
        ip link add pods type bridge
        ip address add {HOST}/16 dev pods
        ip address add {SERVICE}/32 dev pods
        ip link set pods up
        """
        self._must("sh", "-e", "-c", script)

    def _start_control_plane(self) -> None:
        folder = self._folder
        tokens = folder / "tokens"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        names = ("127.0.0.1", SERVICE, HOST, "kubernetes.default.svc")
        certificate, key = self._authority.certificate(*names, file="server")
        self._spawn(
            "etcd",
            f"--data-dir={folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380",
        )
        self._spawn(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            f"--advertise-address={HOST}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--cert-dir={folder}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={certificate}",
            f"--service-account-signing-key-file={key}",
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
        )
        self._wait_for_api()
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self._kubeconfig}",
            f"--service-account-private-key-file={key}",
            f"--root-ca-file={self._authority.ca}",
            "--node-monitor-grace-period=6s",
            "--node-monitor-period=1s",
            "--leader-elect=false",
        )
        self._spawn("kube-scheduler", f"--kubeconfig={self._kubeconfig}", "--leader-elect=false")
        corefile = folder / "Corefile"
        corefile.write_text(NAMES.format(kubeconfig=self._kubeconfig))
        self._spawn("dns", "-conf", str(corefile))

    def _wait_for_api(self) -> None:
        words = ("kubectl", "get", "--raw", "/readyz")
        self._wait("the API server does not answer", lambda: self._succeeds(*words))

    def start_node(self) -> str:
        """Returns: its name. It takes pods."""
        number = next(self._numbers)
        name = f"node{number}"
        folder = self._folder / name
        kept = self.built / name
        (folder / "cni").mkdir(parents=True, exist_ok=True)
        address, socket = f"10.88.{number}.1", f"/run/{name}/containerd.sock"
        self._make_cgroups(name)
        self._must(
            "sh", "-e", "-c",
            f"""
            ip netns add {name}
            ip link add {name} type veth peer name joined netns {name}
            ip link set {name} master pods up
            ip -n {name} link set lo up
            ip -n {name} link add pods type bridge
            ip -n {name} address add {address}/16 dev pods
            ip -n {name} link set joined master pods up
            ip -n {name} link set pods up
            ip -n {name} route add default via {HOST}
            """,
        )  # fmt: skip
        room = ROOM | {
            "ipam": {
                "type": "host-local",
                "dataDir": str(folder / "addresses"),
                "ranges": [[{
                    "subnet": "10.88.0.0/16", "gateway": HOST,
                    "rangeStart": f"10.88.{number}.10", "rangeEnd": f"10.88.{number}.250",
                }]],
                "routes": [{"dst": "0.0.0.0/0"}],
            }
        }  # fmt: skip
        (folder / "cni" / "10-pods.conf").write_text(json.dumps(room))
        containerd = folder / "containerd.toml"
        containerd.write_text(
            CONTAINERD.format(
                root=kept, state=f"/run/{name}", socket=socket, plugins=_cni_plugins()
            ).replace(f'conf_dir = "/run/{name}"', f'conf_dir = "{folder / "cni"}"')
        )
        kubelet = folder / "kubelet.yaml"
        kubelet.write_text(
            NODE.format(
                address=address,
                ca=self._authority.ca,
                cgroup=f"/{self._cgroup}/{name}",
                host=HOST,
                logs=folder / "logs",
                socket=socket,
            )
        )
        inside = ("nsenter", f"--net=/run/netns/{name}")
        self._spawn("containerd", "-c", str(containerd), inside=inside, name=f"containerd-{name}")
        ctr = ("ctr", "-a", socket, "-n", "k8s.io")
        self._wait("containerd does not answer", lambda: self._succeeds(*ctr, "version"))
        for image in IMAGES:
            self._import(ctr, image, kept)
        certificate, key = self._authority.certificate(address, name, file=f"{name}")
        self._spawn(
            "kubelet",
            f"--config={kubelet}",
            f"--kubeconfig={self._kubeconfig}",
            f"--hostname-override={name}",
            f"--node-ip={address}",
            f"--root-dir={folder / 'kubelet'}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            inside=inside,
            name=f"kubelet-{name}",
        )
        self._wait(f"{name} is not ready", lambda: self._is_ready(name))
        return name

    def lose_node(self, name: str) -> None:
        """Cut its network. What is in its pods runs on."""
        self._must("ip", "link", "set", name, "down")

    def _import(self, ctr: Sequence[str], image: str, kept: Path) -> None:
        """The node keeps images from one start to the next."""
        file, done = self.built / f"{image}.tar", kept / f"{image}.imported"
        state = str(file.stat().st_mtime_ns)
        if not done.exists() or done.read_text() != state:
            self._must(*ctr, "images", "import", str(file))
            done.write_text(state)

    def _make_cgroups(self, name: str) -> None:
        """In each controller of version 1. Two nodes of a machine must not take each other's."""
        for controller in CGROUPS.iterdir():
            if not controller.is_dir() or not (controller / "tasks").exists():
                continue
            own = controller / self._cgroup / name
            own.mkdir(parents=True, exist_ok=True)
            for one in (own.parent, own):
                for file in ("cpuset.cpus", "cpuset.mems"):
                    if (one / file).exists():
                        (one / file).write_text((controller / file).read_text())

    def _is_ready(self, name: str) -> bool:
        nodes = json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]
        return any(
            node["metadata"]["name"] == name
            and any(
                c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"]
            )
            for node in nodes
        )

    def _spawn(
        self, program: str, *options: str, inside: Sequence[str] = (), name: str = ""
    ) -> None:
        own = self.built / "bin" / program
        found = str(own) if own.exists() else program
        with (self._folder / f"{name or program}.log").open("ab") as log:
            self._daemons[name or program] = self.sandbox.start(
                *inside, found, *options, env=self.environment, stdout=log, stderr=log
            )

    def end(self) -> None:
        """After the sandbox. Remove cgroups that have no process: ours, and those of former runs that were killed."""
        for process in self._daemons.values():
            process.wait()
        for own in CGROUPS.glob("*/penstock-*"):
            for folder, _, _ in os.walk(own, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def _cni_plugins() -> str:
    for folder in ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"):
        if Path(folder, "bridge").exists():
            return folder
    raise ServerMissing("no CNI plugins are in /usr/lib/cni or /opt/cni/bin: `make kubernetes`.")


@contextlib.contextmanager
def kubernetes(nodes: int = 1) -> Generator[Kubernetes]:
    with tempfile.TemporaryDirectory(prefix="k8s-", ignore_cleanup_errors=True) as folder:
        running = None
        try:
            with sandbox() as place:
                running = Kubernetes(Path(folder), place)
                running.start(nodes)
                yield running
        finally:
            if running is not None:
                running.end()
