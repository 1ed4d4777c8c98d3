"""Keys of uploads: what a listing of a bucket tells of them. Which ones are left over is tried in `test_sink_to_s3.py`."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.files.sink import UploadKey
from penstock.engine.runtime.sink import WriterContext


def context(subtask=0, attempt=0, parallelism=1, job="job-1.", **more):
    return WriterContext(
        subtask, parallelism, attempt, job, f"{job}x", None, operator_id="a", **more
    )


@given(st.integers(0, 32_767), st.integers(0, 4093), st.integers(0, 2**27))
def test_a_key_comes_back_from_the_name_of_its_object(subtask, attempt, behind):
    key = UploadKey.of(context(subtask, attempt, subtask + 1), behind)
    assert str(uuid.UUID(str(key))) == str(key)
    assert UploadKey.in_name(f"compacted-part-{key}-17.txt") == key
    assert (key.subtask, key.attempt, key.restored_id) == (subtask, attempt, behind)


def test_a_name_without_a_key_has_none():
    assert UploadKey.in_name("part-1-2.txt") is None


def test_a_prefix_with_an_uuid_of_its_own_does_not_hide_the_key():
    key = UploadKey.of(context(), 3)
    assert UploadKey.in_name(f"{uuid.uuid4()}-{key}-0") == key


def test_numbers_that_do_not_fit_are_never_leftovers():
    """Attempt 4094 and the later ones, and checkpoints beyond 2**28, share a number."""
    old = UploadKey.of(context(attempt=5000), 1)
    assert not old.is_left(context(attempt=6000))
    late = UploadKey.of(context(), 1 << 40)
    assert not late.is_left(context(attempt=1, restored_checkpoint_id=1))


def test_an_upload_is_left_if_it_was_begun_behind_the_restored_checkpoint():
    for behind in range(5):
        key = UploadKey.of(context(attempt=1), behind)
        assert key.is_left(context(attempt=2, restored_checkpoint_id=2)) == (behind >= 2)
        assert key.is_left(context(attempt=2))
        assert not key.is_left(context(attempt=1))
        assert not key.is_left(context(attempt=2, job="job-2."))


def test_all_attempts_of_a_batch_subtask_have_one_key():
    keys = {UploadKey.of(context(3, attempt, 4, is_batch=True), 0) for attempt in range(3)}
    (key,) = keys
    assert key.is_of_batch_job("job-1.", "a")
    assert not key.is_of_batch_job("job-1.", "b")
    assert not UploadKey.of(context(), 0).is_of_batch_job("job-1.", "a")
