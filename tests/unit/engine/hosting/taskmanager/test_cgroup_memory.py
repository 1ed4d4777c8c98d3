"""What is read of a cgroup's memory, from files that are laid out as the kernel lays them out."""

import pytest

from penstock.engine.hosting.taskmanager.cgroup_memory import CgroupMemory

GIB = 1 << 30
NO_LIMIT_V1 = "9223372036854771712"


class Kernel:
    """`proc` and one mounted hierarchy."""

    def __init__(self, folder, cgroup, mount):
        self.proc = folder / "proc"
        self.root = folder / "mounted"
        (self.proc / "self").mkdir(parents=True)
        self.root.mkdir()
        (self.proc / "self" / "cgroup").write_text(cgroup)
        tmpfs = "30 24 0:28 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,size=10k\n"
        (self.proc / "self" / "mountinfo").write_text(tmpfs + mount.format(self.root))

    def group(self, name="", **files):
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / f"memory.{file}").write_text(text)


@pytest.fixture
def v2(tmp_path):
    mount = "31 23 0:26 / {} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    return Kernel(tmp_path, "0::/pods/pod1/box\n", mount)


@pytest.fixture
def v1(tmp_path):
    """As in a container without a namespace of cgroups: the mount's root is its own cgroup."""
    cgroup = "9:name=systemd:/\n4:cpu,memory:/pods/pod1/box\n0::/\n"
    mount = (
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "35 31 0:32 /pods/pod1/box {} rw,relatime - cgroup cgroup rw,cpu,memory\n"
    )
    return Kernel(tmp_path, cgroup, mount)


def events(kills):
    return f"low 0\nhigh 0\nmax 12\noom 1\noom_kill {kills}\noom_group_kill 0\n"


def test_a_kill_of_v2_is_seen_once_it_is_counted_and_its_limit_is_the_smallest_above(v2):
    v2.group(max="max\n")
    v2.group("pods", max=f"{8 * GIB}\n")
    v2.group("pods/pod1", max=f"{GIB}\n")
    v2.group("pods/pod1/box", max="max\n", events=events(3))
    memory = CgroupMemory(v2.proc)
    assert not memory.has_killed()
    v2.group("pods/pod1/box", events=events(4))
    assert memory.has_killed()
    limit = f"{v2.root}/pods/pod1/memory.max"
    assert memory.describe() == f"its cgroup may have 1.0 GiB ({limit})"


def test_a_kill_of_v1_in_a_container_is_seen_in_the_mounts_root(v1):
    state = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
    v1.group(limit_in_bytes=f"{2 * GIB}", oom_control=state.format(0))
    memory = CgroupMemory(v1.proc)
    v1.group(oom_control=state.format(1))
    assert memory.has_killed()
    limit = f"{v1.root}/memory.limit_in_bytes"
    assert memory.describe() == f"its cgroup may have 2.0 GiB ({limit})"


def test_the_greatest_number_of_v1_is_no_limit(v1):
    v1.group(limit_in_bytes=NO_LIMIT_V1)
    assert CgroupMemory(v1.proc).describe().startswith("no cgroup limits it, and the machine has ")


@pytest.mark.parametrize("missing", ["cgroup", "mountinfo"])
def test_without_the_kernels_files_nobody_was_killed_for_memory(v2, missing):
    (v2.proc / "self" / missing).unlink()
    memory = CgroupMemory(v2.proc)
    assert not memory.has_killed()
    assert memory.describe().startswith("no cgroup limits it")
