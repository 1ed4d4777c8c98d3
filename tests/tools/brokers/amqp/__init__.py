"""An AMQP 0-9-1 broker of the tests' own, in their process, on a loopback port: queues in memory, real clients talk to it.

What RabbitMQ promises is kept: a message that is not acknowledged when its channel ends goes back to its place in the queue and
comes again, marked; a consumer has no more than its prefetch count; acknowledgements in a transaction count from its commit on;
what is published with confirms is confirmed, or returned and confirmed. Connections may be cut, refused, and kept waiting.

With PENSTOCK_TEST_AMQP=amqp://user:password@host:port/vhost in the environment, tests that ask for the fixture `amqp` talk to
that broker instead, over a proxy that can cut connections. Those that plant what no real broker does ask for `own_amqp`.
"""

from tests.tools.brokers.amqp.broker import Broker
from tests.tools.brokers.amqp.proxy import running_proxy
from tests.tools.brokers.amqp.server import running_broker

__all__ = ["Broker", "running_broker", "running_proxy"]
