"""A Kafka broker of the tests' own, in their process, on a loopback port: topics in memory, groups' offsets, transactions.

Real clients talk to it over Kafka's protocol. What a transaction promises is kept: until it ends nobody who reads what is
committed sees its records or offsets, an aborted one is never seen, and a newer producer of the same transactional id ends
what the older one began and fences it off. Tests may make requests fail, before they are carried out or after.
"""

from tests.tools.brokers.kafka.broker import Broker
from tests.tools.brokers.kafka.server import running_broker

__all__ = ["Broker", "running_broker"]
