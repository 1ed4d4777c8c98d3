"""What a Spark task finds out about the folders that it shares with the driver."""

from penstock.engine.hosting.spark import doctor_probe as probe


def test_a_shared_folder_that_others_may_write_is_told_of_with_the_command_that_mends_it(tmp_path):
    good, shared, missing = (tmp_path / name for name in ("good", "shared", "missing"))
    for folder in (good, shared):
        folder.mkdir()
        (folder / "mark").touch()
    shared.chmod(0o777)
    found = probe.folder_errors([str(good), str(shared), str(missing)], "mark")
    assert set(found) == {str(shared), str(missing)}
    assert f"chmod go-w {shared}" in found[str(shared)]
    assert "it is not the driver's folder" in found[str(missing)]


def test_a_file_is_written_read_and_removed_in_an_object_store(object_store):
    assert probe.store_error(object_store.uri("checkpoints")) is None
    assert probe.folder_errors([object_store.uri("checkpoints")], "mark") == {}
    assert object_store.objects() == []


def test_an_object_store_that_cannot_be_written_is_an_error_of_that_folder(object_store):
    nowhere = object_store.uri("checkpoints").replace("://", "://no-such-", 1)
    (error,) = probe.folder_errors([nowhere], "mark").values()
    assert "write no-such-" in error
