"""The class archive is used where it is there, and nothing asks for it where it is not."""

import shlex

import pytest

from penstock.engine.hosting.spark import class_archive


@pytest.mark.parametrize("content", [None, b""], ids=["none", "empty"])
def test_java_starts_without_an_archive(tmp_path, monkeypatch, content):
    archive = tmp_path / "spark-classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    monkeypatch.setattr(class_archive, "ARCHIVE", archive)
    assert class_archive.java_option() == ""


def test_java_is_given_the_archive_and_says_nothing_of_one_that_does_not_fit(tmp_path, monkeypatch):
    archive = tmp_path / "a folder with spaces.jsa"
    archive.write_bytes(b"classes")
    monkeypatch.setattr(class_archive, "ARCHIVE", archive)
    option = class_archive.java_option()
    assert shlex.split(option)[0] == f"-XX:SharedArchiveFile={archive}"
    assert "-Xlog:cds=off" in option
