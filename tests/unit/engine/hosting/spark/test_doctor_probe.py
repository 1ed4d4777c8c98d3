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
