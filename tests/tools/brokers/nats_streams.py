"""Streams of NATS JetStream, as their user sees them: made, filled and read with the client library."""

import asyncio

import nats
from nats.js import api


class Streams:
    """`url`: of the server. Each call has a connection of its own, so the server may be killed between two."""

    def __init__(self, server, **options):
        self.server = server
        self.options = options

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.server.port}"

    def __enter__(self):
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, *_):
        self._runner.close()

    def run(self, make):
        """What `make(JetStream)` gives."""

        async def call():
            client = await nats.connect(self.url, **self.options)
            try:
                return await make(client.jetstream())
            finally:
                await client.close()

        return self._runner.run(call())

    def add(self, name, **settings):
        """A stream that takes the subjects below its name."""
        config = api.StreamConfig(name=name, subjects=[f"{name}.>"], **settings)
        return self.run(lambda stream: stream.add_stream(config))

    def publish(self, name, *texts, subject="x", headers=None):
        async def send(stream):
            answers = [
                await stream.publish_async(f"{name}.{subject}", text.encode(), headers=headers)
                for text in texts
            ]
            await asyncio.gather(*answers)

        self.run(send)

    def texts(self, name):
        """All messages of the stream, in order."""

        async def read(stream):
            count = (await stream.stream_info(name)).state.messages
            messages = await stream.subscribe(f"{name}.>", ordered_consumer=True)
            return [(await messages.next_msg(30)).data.decode() for _ in range(count)]

        return self.run(read)

    def count(self, name):
        return self.run(lambda stream: stream.stream_info(name)).state.messages

    def consumers(self, name):
        return self.run(lambda stream: stream.consumers_info(name))
