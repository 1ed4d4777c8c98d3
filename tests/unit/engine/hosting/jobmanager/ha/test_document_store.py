"""The store in documents: answers that get lost, versions that others have written, what the documents name, and object stores."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.jobmanager.ha.document_store import DocumentJobStore, ObjectDocuments
from penstock.engine.hosting.jobmanager.ha.election import Election
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of, recovery_directory_of
from penstock.engine.hosting.jobmanager.ha.store import LeaseTaken, Signature
from penstock.engine.hosting.os.private_files import NotPrivate
from penstock.engine.hosting.os.s3_objects import s3_objects
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError, ExternalError
from tests.tools.hosting.documents import MemoryDocuments
from tests.tools.hosting.job_entries import ended, lease
from tests.tools.object_store import Store
from tests.tools.output_files import files_below
from tests.tools.permissions import umask
from tests.tools.programs.failover_programs import (
    configured,
    ha_environment,
    holding,
    numbers_to_file,
    other_driver,
    result_of,
)

KEY = "k" * 32


@pytest.fixture
def documents():
    return MemoryDocuments()


@pytest.fixture
def store(documents, tmp_path):
    return DocumentJobStore(documents, str(tmp_path / "cluster"))


def once(call):
    """Calls it the first time only."""
    calls = [call]

    def first():
        if calls:
            calls.pop()()

    return first


def no_answer():
    raise OSError("no answer")


# ------------------------------------------------------------------ answers that get lost


def test_a_write_whose_answer_is_lost_counts_if_it_was_done(store, documents):
    documents.after = once(no_answer)
    entry = store.create(KEY, b"job", lease("a"))
    assert store.find(KEY) == entry
    documents.after = once(no_answer)
    store.put(entry, "checkpoints", b"[1]")
    assert store.read(entry, "checkpoints") == b"[1]"
    documents.after = once(no_answer)
    taken = store.take(entry, lease("b"))
    assert store.find(KEY) == taken
    documents.after = once(no_answer)
    store.remove(taken, ended(taken))
    assert store.ended(KEY) == ended(taken)


def test_a_write_that_never_arrives_has_failed(store, documents):
    documents.before = once(no_answer)
    with pytest.raises(OSError, match="no answer"):
        store.create(KEY, b"job", lease("a"))
    assert store.find(KEY) is None
    entry = store.create(KEY, b"job", lease("a"))
    documents.before = once(no_answer)
    with pytest.raises(OSError, match="no answer"):
        store.put(entry, "checkpoints", b"[1]")
    assert store.read(entry, "checkpoints") is None


def test_a_client_that_tries_twice_is_not_refused_for_its_own_write(store, documents):
    """Its first try was written, and its second one is refused for that."""
    put = documents.put
    documents.put = lambda *write: put(*write) and put(*write)
    entry = store.create(KEY, b"job", lease("a"))
    store.renew(entry, lease("a"))
    for pointers in (b"1", b"2"):
        store.put(entry, "checkpoints", pointers)
        assert store.read(entry, "checkpoints") == pointers
    assert store.find(KEY) == entry
    taken = store.take(entry, lease("b"))
    assert store.find(KEY) == taken


def test_a_write_that_is_done_twice_keeps_its_file(store, documents):
    """It is refused for its own write, which another thread of the holder has replaced meanwhile."""
    entry = store.create(KEY, b"job", lease("a"))
    put, renew = documents.put, once(lambda: store.renew(entry, lease("a")))
    documents.put = lambda *write: put(*write) and (renew() or put(*write))
    store.put(entry, "checkpoints", b"[1]")
    assert store.read(entry, "checkpoints") == b"[1]"


# ------------------------------------------------------------------ versions of others


def test_two_threads_of_a_holder_do_not_fence_each_other(store, documents, tmp_path):
    entry = store.create(KEY, b"job", lease("a"))
    documents.before = once(lambda: store.renew(entry, lease("renewed")))
    store.put(entry, "checkpoints", b"[1]")
    assert store.read(entry, "checkpoints") == b"[1]"
    assert store.lease(entry).owner == "renewed"
    documents.before = once(lambda: store.put(entry, "checkpoints", b"[1, 2]"))
    store.renew(entry, lease("again"))
    assert store.read(entry, "checkpoints") == b"[1, 2]"
    assert len(files_below(tmp_path)) == 2


def test_a_lease_that_is_renewed_in_time_is_not_taken(store, documents):
    entry = store.create(KEY, b"job", lease("a"))
    documents.before = once(lambda: store.renew(entry, lease("a")))
    assert store.take(entry, lease("b")) is None
    assert store.find(KEY) == entry


def test_a_holder_is_fenced_between_its_look_and_its_write(store, documents, tmp_path):
    entry = store.create(KEY, b"job", lease("a"))
    documents.before = once(lambda: store.take(entry, lease("b")))
    with pytest.raises(LeaseTaken, match="driver b has taken it over"):
        store.put(entry, "result", b"mine")
    assert store.read(store.find(KEY), "result") is None
    assert len(files_below(tmp_path)) == 1, "what nobody names is removed"


def test_an_entry_made_by_the_slower_of_two_leaves_nothing(store, documents, tmp_path):
    documents.before = once(lambda: store.create(KEY, b"first", lease("a")))
    assert store.create(KEY, b"second", lease("b")) is None
    assert store.read(store.find(KEY), "job") == b"first"
    assert len(files_below(tmp_path)) == 1


STEPS = st.sampled_from(["create", "take", "renew", "put", "remove", "drop"])
FAULTS = st.sampled_from(["", "", "before", "after"])


@given(st.lists(st.tuples(st.integers(0, 2), STEPS, FAULTS), max_size=20))
def test_who_has_done_a_step_was_the_holder(tmp_path_factory, program):
    """Three drivers; each knows what it believes to be its term, and looks only when it creates or takes."""
    documents = MemoryDocuments()
    store = DocumentJobStore(documents, str(tmp_path_factory.mktemp("cluster")))
    believed = dict.fromkeys(range(3))
    tokens = [0]
    for number, (driver, step, fault) in enumerate(program):
        before, mine, name = store.find(KEY), believed[driver], str(number)
        if fault:
            setattr(documents, fault, once(no_answer))
        try:
            if step == "create":
                done = made = store.create(KEY, b"job", lease(name))
            elif step == "take":
                done = made = None if before is None else store.take(before, lease(name))
            elif mine is None:
                continue
            else:
                made = None
                own = {"renew": lease(name), "remove": ended(mine)}
                rest = ("result", name.encode()) if step == "put" else ()
                getattr(store, step)(mine, *((own[step],) if step in own else rest))
                done = step != "drop" or before == mine
        except OSError:
            assert fault == "before", "what was done counts"
            assert store.find(KEY) == before
            continue
        except LeaseTaken:
            assert before != mine
            assert store.find(KEY) == before
            continue
        finally:
            documents.before = documents.after = lambda: None
        if made is not None:
            believed[driver] = made
            assert store.find(KEY) == made
            assert before is None or made.token > before.token
            tokens.append(made.token)
        elif done and mine is not None and step not in {"create", "take"}:
            assert before == mine, "a former driver has done a step"
            if step == "put":
                assert store.read(mine, "result") == name.encode()


# ------------------------------------------------------------------ what documents name


def test_a_document_names_no_file_elsewhere(store, documents, tmp_path):
    """Whoever may write documents only, and not files, must not choose what is unpickled."""
    (tmp_path / "evil").write_bytes(Signature(b"").sign("job", b"evil"))
    store.create(KEY, b"job", lease("a"))
    data, version = documents.get(KEY)
    fields = json.loads(data)
    fields["files"]["job"] = Signature(b"").sign("job", b"../evil").decode()
    documents.put(KEY, json.dumps(fields).encode(), version)
    with pytest.raises(ExternalError, match="cluster/evil, which does not exist"):
        store.read(store.find(KEY), "job")


def test_a_file_that_others_may_write_is_read_only_with_a_key(tmp_path):
    for key in (b"", b"a key"):
        store = DocumentJobStore(MemoryDocuments(), str(tmp_path / "cluster"), key)
        with umask(0):
            entry = store.create(KEY, b"job", lease("a"))
        (file,) = files_below(tmp_path / "cluster")
        file.chmod(0o660)
        if key:
            assert store.read(entry, "job") == b"job"
            continue
        with pytest.raises(NotPrivate, match="chmod"):
            store.read(entry, "job")
        store.drop(entry)


def test_a_document_signed_with_another_key_is_not_followed(documents, tmp_path):
    one, other = (DocumentJobStore(documents, str(tmp_path), key) for key in (b"one", b"other"))
    entry = one.create(KEY, b"job", lease("a"))
    with pytest.raises(ExternalError, match=f"memory/{KEY}/job is damaged, .* or signed with"):
        other.read(entry, "job")


def test_a_damaged_document_is_no_entry_that_may_be_taken(store, documents):
    store.create(KEY, b"job", lease("a"))
    _, version = documents.get(KEY)
    documents.put(KEY, b"{}", version)
    with pytest.raises(OSError, match=f"memory/{KEY} is damaged"):
        store.find(KEY)


# ------------------------------------------------------------------ object stores


@pytest.fixture
def in_bucket(object_store):
    return {"high-availability.storageDir": object_store.uri("ha")}


def test_a_job_in_a_bucket_has_an_entry_while_it_runs(object_store, in_bucket, tmp_path):
    """Nothing else of it is left there, and no directory is needed."""
    env = ha_environment(tmp_path, **in_bucket)
    other = other_driver(tmp_path, **in_bucket)
    with holding("bucket") as held:
        numbers_to_file(env, tmp_path, held)
        client = env.execute_async("numbers")
        held.wait()
        (key,) = other.store.job_keys()
        assert other.store.lease(other.store.find(key)).job_name == "numbers"
    client.get_job_execution_result().result()
    assert other.store.job_keys() == []
    assert other.store.ended(key).status == "FINISHED"
    assert object_store.objects() == [f"ha/tests/jobs/{key}"]
    assert result_of(tmp_path) == list(range(10))
    assert not (tmp_path / "ha").exists()


def test_checkpoints_for_recovery_lie_in_the_bucket_too(object_store, in_bucket, tmp_path):
    found = recovery_directory_of(Settings(configured(tmp_path, **in_bucket)))
    assert found == object_store.uri("ha/tests-checkpoints")


@pytest.mark.server
def test_a_server_that_ignores_conditions_is_refused(other_server, tmp_path):
    uri = Store(other_server, "S3RVER:S3RVER").uri("ha")
    with pytest.raises(ConfigurationError, match="bucket/ha/tests/jobs ignores If-None-Match"):
        other_driver(tmp_path, **{"high-availability.storageDir": uri})


def test_a_server_that_ignores_tags_is_refused(object_store, monkeypatch):
    objects = s3_objects(object_store.uri("ha"))
    put_if = objects.put_if
    monkeypatch.setattr(objects, "put_if", lambda *write: put_if(*write) or write[2] is not None)
    with pytest.raises(ConfigurationError, match="bucket/ha ignores If-Match when"):
        ObjectDocuments(objects, "bucket/ha")
    assert object_store.objects() == []


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path):
    uri = "s3://key:secret@bucket/ha?scheme=http&endpoint_override=127.0.0.1:1&region=us-east-1"
    with pytest.raises(ExternalError, match="cannot use bucket/ha/tests/jobs: ") as caught:
        other_driver(tmp_path, **{"high-availability.storageDir": uri})
    assert "secret" not in str(caught.value)


def test_an_option_that_boto3_does_not_take_is_refused(tmp_path):
    uri = "s3://key:secret@bucket/ha?tls_ca_file_path=/ca"
    settings = ha_settings_of(
        Settings(configured(tmp_path, **{"high-availability.storageDir": uri}))
    )
    with pytest.raises(ConfigurationError, match="takes the options region") as caught:
        Election(settings, lambda _text: None)
    assert "secret" not in str(caught.value)
