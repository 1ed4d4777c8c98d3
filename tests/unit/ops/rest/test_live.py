"""Live streams: what they tell, when, and what they refuse."""

import asyncio
import json

import pytest
from starlette.requests import Request

from penstock.engine.hosting.network.http_server import Caller
from penstock.ops.rest.answers import Answer, RestError
from penstock.ops.rest.live import Live
from penstock.ops.rest.routes import Route


class Figures:
    """What handlers tell, and who listens to changes."""

    def __init__(self) -> None:
        self.value = 1
        self.listeners = []

    def listen(self, listener):
        self.listeners.append(listener)

    def unlisten(self, listener):
        self.listeners.remove(listener)


def value(driver, asked):
    return Answer({"value": driver.value, "name": asked.path["name"], "q": dict(asked.query)})


def refuses(_driver, _asked):
    raise RestError(404, "no such job")


def breaks(_driver, _asked):
    raise RuntimeError("a bug")


ROUTES = (
    Route("GET", "/values/{name}", value, ""),
    Route("GET", "/steady", lambda *_: Answer({"always": "the same"}), ""),
    Route("GET", "/refuses", refuses, ""),
    Route("GET", "/breaks", breaks, ""),
    Route("GET", "/file", lambda *_: Answer(b'{\n"a": 1}'), ""),
    Route("GET", "/waits", value, "", waits=True),
    Route("GET", "/cancel", value, "", changes=True),
    Route("POST", "/posted", value, "", changes=True),
)


def request(query, origin):
    state = {"caller": Caller(None, "127.0.0.1", origin, is_own_user=False, is_proven=False)}
    asked = {"type": "http", "method": "GET", "query_string": query.encode(), "headers": []}
    return Request(asked | {"state": state})


def opened(live, query, check=lambda _route: None, origin=1):
    return live.stream(request(query, origin), check).body_iterator


async def one_round(stream):
    """The answers of a round by their paths."""
    found = {}
    async for event in stream:
        name, data = event.decode().removesuffix("\n\n").split("\n")
        told = json.loads(data.removeprefix("data: "))
        if name == "event: round":
            assert told["now"] > 0
            return found
        assert name == "event: answer"
        found[told["path"]] = (told["status"], told["body"])
    raise AssertionError("it has ended")


def test_a_round_tells_each_path_with_its_parameters():
    async def run():
        stream = opened(Live(Figures(), ROUTES, Figures()), "path=/values/a&path=/values/b%3Fx%3D1")
        return await one_round(stream)

    assert asyncio.run(run()) == {
        "/values/a": (200, {"value": 1, "name": "a", "q": {}}),
        "/values/b?x=1": (200, {"value": 1, "name": "b", "q": {"x": "1"}}),
    }


def test_errors_are_told_as_answers_of_their_path(caplog):
    async def run():
        stream = opened(Live(None, ROUTES, Figures()), "path=/refuses&path=/breaks&path=/file")
        return await one_round(stream)

    assert asyncio.run(run()) == {
        "/refuses": (404, {"errors": ["no such job"]}),
        "/breaks": (500, {"errors": ["Internal server error."]}),
        "/file": (200, {"a": 1}),
    }
    assert "a bug" in caplog.text


def test_only_what_has_changed_is_told_again_and_a_change_is_told_at_once():
    """The interval is an hour: the second round comes by the change alone."""

    async def run():
        figures = Figures()
        query = "path=/values/a&path=/steady&interval=3600000"
        stream = opened(Live(figures, ROUTES, figures), query)
        first = await one_round(stream)
        figures.value = 2
        (tell,) = figures.listeners
        tell("something has happened")
        return first, await one_round(stream)

    first, second = asyncio.run(run())
    assert first.keys() == {"/values/a", "/steady"}
    assert second == {"/values/a": (200, {"value": 2, "name": "a", "q": {}})}


def test_nobody_listens_to_changes_while_nobody_looks():
    async def run():
        figures = Figures()
        live = Live(figures, ROUTES, figures)
        before = list(figures.listeners)
        streams = [opened(live, "path=/steady"), opened(live, "path=/steady")]
        for stream in streams:
            await one_round(stream)
        during = list(figures.listeners)
        for stream in streams:
            await stream.aclose()
        return before, during, figures.listeners

    before, during, after = asyncio.run(run())
    assert (before, len(during), after) == ([], 1, [])


def test_closing_ends_all_streams():
    async def run():
        figures = Figures()
        live = Live(figures, ROUTES, figures)
        stream = opened(live, "path=/steady&interval=3600000")
        await one_round(stream)
        live.close()
        return [event async for event in stream]

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("", "0 paths"),
        ("&".join(["path=/steady"] * 33), "33 paths"),
        ("path=/nowhere", "'/nowhere'"),
        ("path=/waits", "'/waits'"),
        ("path=/cancel", "'/cancel'"),
        ("path=/posted", "'/posted'"),
        ("path=/steady&interval=199", "199"),
        ("path=/steady&interval=3600001", "3600001"),
        ("path=/steady&interval=soon", "soon"),
    ],
)
def test_what_a_stream_cannot_tell_is_refused(query, part):
    with pytest.raises(RestError) as refused:
        opened(Live(None, ROUTES, Figures()), query)
    assert refused.value.status == 400
    assert part in refused.value.texts[0]


def test_whoever_may_not_ask_a_path_may_not_stream_it():
    def check(route):
        raise RestError(401, f"not {route.path}")

    with pytest.raises(RestError) as refused:
        opened(Live(None, ROUTES, Figures()), "path=/steady", check)
    assert refused.value.texts == ("not /steady",)


def test_there_are_not_more_streams_of_one_user_than_the_server_can_bear():
    """Other users have as many, whatever one of them has."""

    async def run():
        figures = Figures()
        live = Live(figures, ROUTES, figures)
        streams = [opened(live, "path=/steady") for _ in range(32)]
        for stream in streams:
            await one_round(stream)
        with pytest.raises(RestError) as refused:
            opened(live, "path=/steady")
        await one_round(opened(live, "path=/steady", origin=2))
        await streams[0].aclose()
        await one_round(opened(live, "path=/steady"))
        return refused.value.status

    assert asyncio.run(run()) == 503
