"""Archives of a program are checked before anything runs: what leaves its folder is refused, and named."""

import io
import stat
import tarfile
import zipfile

import pytest

from penstock.engine.hosting.shipping.program_files import checked_archives
from penstock.engine.model.errors import ConfigurationError

OUTSIDE = ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", ".."]
LINKS = ["../x", "/etc", "../../x"]


def zipped(path, *names, link_to=None):
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            one = zipfile.ZipInfo(name)
            one.external_attr = (stat.S_IFREG | 0o644) << 16
            made.writestr(one, "data")
        if link_to is not None:
            one = zipfile.ZipInfo("folder/link")
            one.external_attr = (stat.S_IFLNK | 0o777) << 16
            made.writestr(one, link_to)
    return str(path)


def tarred(path, name, **more):
    with tarfile.open(path, "w:gz" if str(path).endswith("gz") else "w") as made:
        one = tarfile.TarInfo(name)
        for key, value in more.items():
            setattr(one, key, value)
        if one.isreg():
            one.size = 4
        made.addfile(one, io.BytesIO(b"data") if one.isreg() else None)
    return str(path)


def test_archives_have_the_targets_that_are_given_or_their_names(tmp_path):
    one = zipped(tmp_path / "one.zip", "a/b.txt", "a/./c.txt", link_to="../a/b.txt")
    two = tarred(tmp_path / "two.tar.gz", "x/y")
    assert checked_archives([(one, None), (two, "data/two/")]) == (
        (one, "one.zip"),
        (two, "data/two"),
    )


@pytest.mark.parametrize("target", ["", ".", "./", "a/..", "a/.", "\0"])
def test_a_target_that_is_no_folder_of_its_own_is_refused(tmp_path, target):
    path = zipped(tmp_path / "a.zip", "x")
    if target == "a/.":
        assert checked_archives([(path, target)]) == ((path, "a"),)
        return
    with pytest.raises(ConfigurationError, match="names no folder of its own"):
        checked_archives([(path, target)])


@pytest.mark.parametrize("target", ["..", "../x", "/tmp/x", "a/../../x"])
def test_a_target_outside_of_the_working_directory_is_refused(tmp_path, target):
    with pytest.raises(ConfigurationError, match="outside of the working directory"):
        checked_archives([(zipped(tmp_path / "a.zip", "x"), target)])


@pytest.mark.parametrize(
    ("first", "second"), [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "./a")]
)
def test_targets_in_one_another_are_refused(tmp_path, first, second):
    path = zipped(tmp_path / "a.zip", "x")
    with pytest.raises(ConfigurationError, match="a folder of its own"):
        checked_archives([(path, first), (path, second)])


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tgz"])
def test_a_path_that_leaves_its_archive_is_refused(tmp_path, kind, name):
    path = tmp_path / f"a.{kind}"
    made = zipped(path, "good", name) if kind == "zip" else tarred(path, name)
    with pytest.raises(ConfigurationError, match="is a path that leaves the archive"):
        checked_archives([(made, None)])


@pytest.mark.parametrize("to", LINKS)
def test_a_link_that_leads_out_is_refused(tmp_path, to):
    outside = to if to.startswith("/") else f"../{to}"
    link = tarred(tmp_path / "a.tar", "folder/link", type=tarfile.SYMTYPE, linkname=outside)
    for made in (zipped(tmp_path / "a.zip", "good", link_to=outside), link):
        with pytest.raises(ConfigurationError, match="'folder/link', which is a link to"):
            checked_archives([(made, None)])


def test_a_hard_link_that_leads_out_and_a_device_are_refused(tmp_path):
    hard = tarred(tmp_path / "a.tar", "link", type=tarfile.LNKTYPE, linkname="../x")
    with pytest.raises(ConfigurationError, match="is a hard link to"):
        checked_archives([(hard, None)])
    for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE):
        with pytest.raises(ConfigurationError, match="is a device or a pipe"):
            checked_archives([(tarred(tmp_path / "b.tar", "x", type=kind), None)])


CHAINS = {
    "a file behind a link to the top": [("a/b/c", "../.."), ("a/b/c/../x", None)],
    "a file behind a link": [("a/b/c", "../.."), ("a/b/c/x", None)],
    "a link behind a link": [("a/b/c", "../.."), ("a/b/c/l", "../../../x")],
    "a link that goes up behind a link": [("a/b/c", "../.."), ("k", "a/b/c/..")],
    "a file before its link": [("a/b/c/x", None), ("a/b/c", "../..")],
}
"""(name, target of a link or None). As a text, each of these paths stays inside."""


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("chain", CHAINS)
def test_links_that_lead_out_together_are_refused(tmp_path, kind, chain):
    path = tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as made:
            for name, link in CHAINS[chain]:
                one = zipfile.ZipInfo(name)
                one.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o777) << 16
                made.writestr(one, link or "data")
    else:
        with tarfile.open(path, "w") as made:
            for name, link in CHAINS[chain]:
                one = tarfile.TarInfo(name)
                one.type, one.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
                made.addfile(one)
    with pytest.raises(ConfigurationError, match="reach outside of its folder"):
        checked_archives([(str(path), None)])


def test_links_of_an_environment_stay_inside(tmp_path):
    path = tmp_path / "env.tar"
    with tarfile.open(path, "w") as made:
        for name, link in {
            "bin/python": "python3",
            "bin/python3": "../opt/bin/py",
            "lib64": "lib",
        }.items():
            one = tarfile.TarInfo(f"./{name}")
            one.type, one.linkname = tarfile.SYMTYPE, link
            made.addfile(one)
        for name in ("opt/bin/py", "lib/x..y/..z"):
            made.addfile(tarfile.TarInfo(name))
    assert checked_archives([(str(path), "env")]) == ((str(path), "env"),)


@pytest.mark.parametrize("kind", ["zip", "tar", "tgz"])
def test_what_is_no_archive_is_refused(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"no archive at all")
    with pytest.raises(ConfigurationError, match="cannot be read as an archive"):
        checked_archives([(str(path), None)])
    with pytest.raises(ConfigurationError, match="not an archive that Spark can unpack"):
        checked_archives([(str(tmp_path / f"none.{kind}"), None)])


def locked(path):
    """A zip whose link is encrypted: where it leads cannot be told."""
    zipped(path, link_to="inside")
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    path.write_bytes(data)


def of_an_unknown_compression(path):
    zipped(path, link_to="inside")
    data = bytearray(path.read_bytes())
    for mark, method in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + method] = 99
    path.write_bytes(data)


def with_a_damaged_link(path):
    with zipfile.ZipFile(path, "w") as made:
        one = zipfile.ZipInfo("link")
        one.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(one, "inside" * 200, zipfile.ZIP_LZMA)
    data = bytearray(path.read_bytes())
    start = 30 + len("link") + 9  # Behind the head of the file, and LZMA's own.
    data[start : start + 12] = bytes(range(255, 243, -1))
    path.write_bytes(data)


@pytest.mark.parametrize("damaged", [locked, of_an_unknown_compression, with_a_damaged_link])
def test_an_archive_that_cannot_be_looked_at_is_refused(tmp_path, damaged):
    path = tmp_path / "a.zip"
    damaged(path)
    with pytest.raises(ConfigurationError, match="cannot be read as an archive"):
        checked_archives([(str(path), None)])
