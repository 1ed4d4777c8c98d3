"""The dashboard's files on the server."""

import hashlib
import json
import posixpath
import re
import tarfile
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from penstock.ops.rest import pages as module
from penstock.ops.rest.access import access_of
from penstock.ops.rest.application import application_of
from penstock.ops.rest.live import Live
from penstock.ops.rest.pages import pages

FOLDER = files("penstock.ops") / "dashboard"
VENDORED = json.loads((FOLDER / "vendor" / "parts.json").read_text("utf-8"))


def client(address="http://localhost:8081"):
    access = access_of("others", "t", "localhost")
    return TestClient(application_of(None, (), access, 1000), address)


def test_the_page_and_all_that_it_names_are_there():
    page = client().get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    named = re.findall(r'(?:href|src)="(/[^"]+)"', page.text)
    assert {one.rpartition(".")[2] for one in named} == {"svg", "js", "css"}
    for path in named:
        assert client().get(path).status_code == 200, path


def imports_of(path, pattern):
    """The modules that a module names, as paths on the server."""
    text = pages()[path].content.decode()
    folder = path.rpartition("/")[0]
    return {posixpath.normpath(f"{folder}/{name}") for name in re.findall(pattern, text)}


def test_modules_import_only_what_is_served():
    for path in pages():
        if path.startswith("/dashboard/app/"):
            missing = imports_of(path, r'(?:from |import\()"(\.[^"]+)"') - set(pages())
            assert missing == set(), path


def named_by_the_page(kind):
    (path,) = re.findall(rf'"(/dashboard/[^"]+\.{kind})"', pages()["/"].content.decode())
    return path


def test_a_browser_asks_for_one_file_with_all_modules():
    """Else it asks for a module only when it has read the one that imports it."""
    joined = pages()[named_by_the_page("js")].content.decode()
    modules = {one for one in pages() if re.match(r"/dashboard/(app|vendor)/.+\.js$", one)}
    parts = set(re.findall(r"^// (\S+\.js)$", joined, re.MULTILINE))
    assert parts == {one.removeprefix("/dashboard/") for one in modules}


def test_a_browser_asks_for_one_file_with_all_styles():
    joined = pages()[named_by_the_page("css")].content.decode()
    written = (FOLDER / "index.html").read_text("utf-8")
    named = re.findall(r'rel="stylesheet" href="([^"]+)"', written)
    places = [joined.index(pages()[one].content.decode().strip()) for one in named]
    assert places == sorted(places)
    assert {one for one in pages() if re.match(r"/dashboard/\w+/.+\.css$", one)} == set(named)


@pytest.mark.parametrize("kind", ["js", "css"])
def test_a_browser_keeps_what_has_the_sum_of_its_bytes_in_its_name(kind):
    path = named_by_the_page(kind)
    sum_of_bytes = hashlib.sha256(pages()[path].content).hexdigest()
    assert path.split(".")[1] == sum_of_bytes[:12]
    assert client().get(path).headers["cache-control"] == "private, max-age=31536000, immutable"
    assert client().get("/").headers["cache-control"] == "no-cache"


def test_a_server_of_archives_says_in_the_page_that_it_is_one():
    archive = client().get("/").text
    live = Live(None, (), None)
    access = access_of("others", "t", "localhost")
    driver = TestClient(application_of(None, (), access, 1000, live=live), "http://localhost:8081")
    assert 'data-server="archive"' in archive
    assert driver.get("/").text == archive.replace("archive", "live", 1)


def test_a_script_is_a_script_and_nothing_else_may_run():
    told = client().get("/dashboard/app/main.js")
    assert told.headers["content-type"] == "text/javascript; charset=UTF-8"
    policy = told.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_a_browser_that_has_the_file_is_told_so():
    first = client().get("/dashboard/app/main.js")
    again = client().get("/dashboard/app/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_another_host_gets_no_page():
    assert client("http://evil.example").get("/").status_code == 403


@pytest.mark.parametrize("path", ["/dashboard/../pyproject.toml", "/dashboard/none.js"])
def test_nothing_else_is_served(path):
    assert client().get(path).status_code == 404


@pytest.mark.parametrize("part", VENDORED, ids=lambda one: one["file"])
def test_a_vendored_file_is_the_one_that_is_recorded(part):
    content = (FOLDER / "vendor" / part["file"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == part["sha256"]
    name = part["package"].rpartition("/")[2]
    assert (FOLDER / "vendor" / f"{name}.LICENSE.txt").is_file()


def test_every_vendored_file_is_recorded():
    scripts = {
        one.name for one in (FOLDER / "vendor").iterdir() if one.name.endswith((".js", ".css"))
    }
    assert scripts == {one["file"] for one in VENDORED}


def test_a_python_without_lzma_says_why_there_is_no_dashboard(tmp_path, monkeypatch):
    """A wheel has the files in one archive. The API is served all the same."""

    def without_lzma(**_):
        raise tarfile.CompressionError("lzma module is not available")

    (tmp_path / "dashboard.tar.xz").write_bytes(b"")
    monkeypatch.setattr(module, "files", lambda _: tmp_path)
    monkeypatch.setattr(module.tarfile, "open", without_lzma)
    found = module.pages.__wrapped__()
    assert list(found) == ["/"]
    assert b"built without lzma" in found["/"].content
