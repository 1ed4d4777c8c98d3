"""Short-lived JVMs take their classes from an archive where there is one."""

from audit.jvm import options


def test_an_archive_is_used_when_it_is_there_and_not_empty(tmp_path):
    archive = tmp_path / "classes.jsa"
    brief = options(archive)
    assert "SharedArchiveFile" not in brief
    archive.touch()
    assert options(archive) == brief
    archive.write_bytes(b"classes")
    assert options(archive).startswith(f"{brief} -XX:SharedArchiveFile={archive}")
