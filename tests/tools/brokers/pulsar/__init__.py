"""A Pulsar broker of the tests' own, in their process, on a loopback port: topics and subscriptions in memory.

Real clients talk to it over Pulsar's binary protocol. Messages are kept as producers framed them, batches too. Where
deduplication is on, a message of a producer's name with a sequence id that is not above its last one is dropped, as a real
broker drops it. Tests may make requests fail, before they are carried out or after, and may ask for a token.
"""

from tests.tools.brokers.pulsar.broker import Broker
from tests.tools.brokers.pulsar.server import running_broker

__all__ = ["Broker", "running_broker"]
