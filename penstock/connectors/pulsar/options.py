"""Flink's options `pulsar.client.`, `.producer.`, `.consumer.`, `.source.` and `.sink.`, and how they are applied.

Options that the Python client supports are passed on under its names. Options that only tune Java's client are ignored.
Options that it cannot support, and unknown ones, are errors. Does not know any client.
Source: Flink's PulsarOptions, PulsarSourceOptions, PulsarSinkOptions.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from penstock.common.config_options import ConfigOption
from penstock.connectors.api.messaging.properties import checked_property, flag_of, int_of
from penstock.engine.model.errors import ConfigurationError

SERVICE_URL: Final = "pulsar.client.serviceUrl"
ADMIN_URL: Final = "pulsar.admin.adminUrl"
AUTH_CLASS: Final = "pulsar.client.authPluginClassName"
AUTH_PARAMS: Final = "pulsar.client.authParams"
AUTH_MAP: Final = "pulsar.client.authParamMap"
OPERATION_TIMEOUT_MS: Final = "pulsar.client.operationTimeoutMs"
SUBSCRIPTION: Final = "pulsar.consumer.subscriptionName"
CONSUMER_NAME: Final = "pulsar.consumer.consumerName"
RECEIVER_QUEUE: Final = "pulsar.consumer.receiverQueueSize"
SEND_TIMEOUT_MS: Final = "pulsar.producer.sendTimeoutMs"
PRODUCER_NAME: Final = "pulsar.producer.producerName"
BATCHING_MESSAGES: Final = "pulsar.producer.batchingMaxMessages"
BATCHING: Final = "pulsar.producer.batchingEnabled"
CHUNKING: Final = "pulsar.producer.chunkingEnabled"
DISCOVERY_INTERVAL_MS: Final = "pulsar.source.partitionDiscoveryIntervalMs"
AUTO_ACKNOWLEDGE: Final = "pulsar.source.enableAutoAcknowledgeMessage"
AUTO_ACKNOWLEDGE_MS: Final = "pulsar.source.autoCommitCursorInterval"
VERIFY_START: Final = "pulsar.source.verifyInitialOffsets"
RESET_SUBSCRIPTION: Final = "pulsar.source.resetSubscriptionCursor"
REFRESH_INTERVAL_MS: Final = "pulsar.sink.topicMetadataRefreshInterval"
GUARANTEE: Final = "pulsar.sink.deliveryGuarantee"

OPERATION_TIMEOUT_DEFAULT_MS: Final = 30_000
SEND_TIMEOUT_DEFAULT_MS: Final = 30_000
DISCOVERY_INTERVAL_DEFAULT_MS: Final = 5 * 60 * 1000
AUTO_ACKNOWLEDGE_DEFAULT_MS: Final = 5_000
REFRESH_INTERVAL_DEFAULT_MS: Final = 30 * 60 * 1000
BATCHING_MESSAGES_DEFAULT: Final = 1000
RECEIVER_QUEUE_DEFAULT: Final = 1000
WARNS, FAILS = "WARN_ON_MISMATCH", "FAIL_ON_MISMATCH"

Options: TypeAlias = Mapping[str, str]
Read: TypeAlias = Callable[[Options, str], Any]


def _int(options: Options, key: str) -> int:
    return int_of(options, key, 0)


def _at_least_1(options: Options, key: str) -> int:
    """The value, at least 1: a consumer without a queue gives no batches."""
    return max(1, _int(options, key))


def _flag(options: Options, key: str) -> bool:
    return flag_of(options, key, default=False)


def _text(options: Options, key: str) -> str:
    return options[key]


def _up_to_thousands(options: Options, key: str) -> int:
    """The value in a unit a thousand times larger (milliseconds to seconds, microseconds to milliseconds), at least 1."""
    return max(1, -(-_int(options, key) // 1000))


CLIENT: Final[Mapping[str, tuple[str, Read]]] = {
    OPERATION_TIMEOUT_MS: ("operation_timeout_seconds", _up_to_thousands),
    "pulsar.client.connectionTimeoutMs": ("connection_timeout_ms", _int),
    "pulsar.client.numIoThreads": ("io_threads", _int),
    "pulsar.client.numListenerThreads": ("message_listener_threads", _int),
    "pulsar.client.concurrentLookupRequest": ("concurrent_lookup_requests", _int),
    "pulsar.client.statsIntervalSeconds": ("stats_interval_in_seconds", _int),
    "pulsar.client.listenerName": ("listener_name", _text),
    "pulsar.client.tlsTrustCertsFilePath": ("tls_trust_certs_file_path", _text),
    "pulsar.client.tlsKeyFilePath": ("tls_private_key_file_path", _text),
    "pulsar.client.tlsCertificateFilePath": ("tls_certificate_file_path", _text),
    "pulsar.client.tlsAllowInsecureConnection": ("tls_allow_insecure_connection", _flag),
    "pulsar.client.tlsHostnameVerificationEnable": ("tls_validate_hostname", _flag),
}
PRODUCER: Final[Mapping[str, tuple[str, Read]]] = {
    SEND_TIMEOUT_MS: ("send_timeout_millis", _int),
    "pulsar.producer.maxPendingMessages": ("max_pending_messages", _int),
    "pulsar.producer.maxPendingMessagesAcrossPartitions": (
        "max_pending_messages_across_partitions", _int,
    ),
    BATCHING: ("batching_enabled", _flag),
    BATCHING_MESSAGES: ("batching_max_messages", _int),
    "pulsar.producer.batchingMaxBytes": ("batching_max_allowed_size_in_bytes", _int),
    "pulsar.producer.batchingMaxPublishDelayMicros": (
        "batching_max_publish_delay_ms", _up_to_thousands,
    ),
    CHUNKING: ("chunking_enabled", _flag),
    "pulsar.producer.compressionType": ("compression_type", _text),
    "pulsar.producer.initialSequenceId": ("initial_sequence_id", _int),
}  # fmt: skip
CONSUMER: Final[Mapping[str, tuple[str, Read]]] = {
    RECEIVER_QUEUE: ("receiver_queue_size", _at_least_1),
    "pulsar.consumer.maxTotalReceiverQueueSizeAcrossPartitions": (
        "max_total_receiver_queue_size_across_partitions", _int,
    ),
    "pulsar.consumer.readCompacted": ("is_read_compacted", _flag),
    "pulsar.consumer.replicateSubscriptionState": ("replicate_subscription_state_enabled", _flag),
    "pulsar.consumer.maxPendingChunkedMessage": ("max_pending_chunked_message", _int),
    "pulsar.consumer.autoAckOldestChunkedMessageOnQueueFull": (
        "auto_ack_oldest_chunked_message_on_queue_full", _flag,
    ),
}  # fmt: skip
PROPERTIES: Final = ("pulsar.producer.properties.", "pulsar.consumer.properties.")

_OURS: Final = frozenset({
    SERVICE_URL, ADMIN_URL, AUTH_CLASS, AUTH_PARAMS, SUBSCRIPTION, CONSUMER_NAME, PRODUCER_NAME, DISCOVERY_INTERVAL_MS,
    AUTO_ACKNOWLEDGE, AUTO_ACKNOWLEDGE_MS, VERIFY_START, RESET_SUBSCRIPTION, REFRESH_INTERVAL_MS, GUARANTEE,
})  # fmt: skip
_OF_JAVA: Final = frozenset({
    "pulsar.client.lookupTimeoutMs", "pulsar.client.connectionsPerBroker", "pulsar.client.connectionMaxIdleSeconds",
    "pulsar.client.useTcpNoDelay", "pulsar.client.maxLookupRequest", "pulsar.client.maxLookupRedirects",
    "pulsar.client.maxNumberOfRejectedRequestPerConnection", "pulsar.client.keepAliveIntervalSeconds",
    "pulsar.client.initialBackoffIntervalNanos", "pulsar.client.maxBackoffIntervalNanos",
    "pulsar.client.enableBusyWait", "pulsar.client.requestTimeoutMs", "pulsar.client.memoryLimitBytes",
    "pulsar.client.enableTransaction", "pulsar.admin.connectTimeout", "pulsar.admin.readTimeout",
    "pulsar.admin.requestTimeout", "pulsar.admin.requestRetries", "pulsar.admin.requestWaitMillis", "pulsar.admin.requestRates",
    "pulsar.source.maxFetchTime", "pulsar.source.maxFetchRecords", "pulsar.source.fetchOneMessageTime",
    "pulsar.source.enableMetrics", "pulsar.source.allowKeySharedOutOfOrderDelivery",
    "pulsar.source.transactionTimeoutMillis", "pulsar.consumer.acknowledgementsGroupTimeMicros",
    "pulsar.consumer.negativeAckRedeliveryDelayMicros", "pulsar.consumer.ackTimeoutMillis",
    "pulsar.consumer.tickDurationMillis", "pulsar.consumer.priorityLevel", "pulsar.consumer.poolMessages",
    "pulsar.consumer.expireTimeOfIncompleteChunkedMessageMillis", "pulsar.consumer.retryEnable",
    "pulsar.consumer.ackReceiptEnabled", "pulsar.consumer.autoUpdatePartitionsIntervalSeconds",
    "pulsar.sink.transactionTimeoutMillis", "pulsar.sink.messageKeyHash", "pulsar.sink.maxRecommitTimes",
    "pulsar.sink.enableMetrics", "pulsar.sink.maxPendingMessages",
    "pulsar.producer.batchingPartitionSwitchFrequencyByPublishDelay", "pulsar.producer.chunkMaxMessageSize",
    "pulsar.producer.producerCryptoFailureAction", "pulsar.consumer.cryptoFailureAction",
})  # fmt: skip
"""Options that tune Java's client, or have nothing to apply to: a source redelivers nothing, a sink has no keys."""

_INSTEAD: Final = {
    "pulsar.client.useKeyStoreTls": "pulsar.client.tlsTrustCertsFilePath, a file of PEM certificates",
    "pulsar.client.tlsTrustStorePath": "pulsar.client.tlsTrustCertsFilePath, a file of PEM certificates",
    "pulsar.client.tlsTrustStoreType": "pulsar.client.tlsTrustCertsFilePath, a file of PEM certificates",
    "pulsar.client.tlsTrustStorePassword": "pulsar.client.tlsTrustCertsFilePath, which needs no password",
    "pulsar.client.proxyServiceUrl": "pulsar.client.serviceUrl, with the address of the proxy",
    "pulsar.consumer.subscriptionMode": "nothing: a subscription is durable here",
    "pulsar.consumer.subscriptionType": "nothing: a subscription is exclusive here",
    "pulsar.consumer.deadLetterPolicy.maxRedeliverCount": "nothing: no message is redelivered or given up here",
    "pulsar.consumer.deadLetterPolicy.deadLetterTopic": "nothing: no message is redelivered or given up here",
    "pulsar.consumer.deadLetterPolicy.retryLetterTopic": "nothing: no message is redelivered or given up here",
    "pulsar.source.enableSchemaEvolution": "nothing: schemas are those of set_deserialization_schema",
    "pulsar.sink.enableSchemaEvolution": "nothing: schemas are those of set_serialization_schema",
    "pulsar.sink.validateSinkMessageBytes": "nothing: messages are bytes here",
}


def with_option(options: Options, key: object, value: object, setter: str) -> dict[str, str]:
    """The options with this one added. A dict as value sets several options: its keys are appended to the option's
    name.

    Raises: ConfigurationError: the option is unknown or not supported, or it is set already to something else.
    """
    name = key.key if isinstance(key, ConfigOption) else key
    if isinstance(value, Mapping):
        found = dict(options)
        for part, inner in value.items():
            found = with_option(found, f"{name}.{part}", inner, setter)
        return found
    is_secret = isinstance(name, str) and name.startswith((AUTH_PARAMS, AUTH_MAP))
    if is_secret and not isinstance(value, str):
        raise ConfigurationError(
            f"{setter}: expected text as the value of {name!r}, got {type(value).__name__}."
        )
    name, text = checked_property(name, value.name if isinstance(value, Enum) else value, setter)
    _check_name(name, text, setter)
    if options.get(name, text) != text:
        shown = "" if is_secret else f", to {options[name]!r}; got {text!r}"
        raise ConfigurationError(f"{setter}: {name!r} is set already{shown}. Set it once.")
    return {**options, name: text}


def with_options(options: Options, more: object, setter: str) -> dict[str, str]:
    """The options with these added. Raises: ConfigurationError."""
    if not isinstance(more, Mapping):
        raise ConfigurationError(f"{setter}: expected a dict of options, got {more!r}.")
    found = dict(options)
    for key, value in more.items():
        found = with_option(found, key, value, setter)
    return found


def arguments_of(options: Options, table: Mapping[str, tuple[str, Read]]) -> dict[str, Any]:
    """The options of a table, as arguments of the client. Raises: ConfigurationError: a value cannot be used."""
    return {name: read(options, key) for key, (name, read) in table.items() if key in options}


def properties_of(options: Options, prefix: str) -> dict[str, str]:
    """The metadata of a producer or consumer: the options with this prefix, without it."""
    return {
        key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)
    }


def operation_timeout_s(options: Options) -> float:
    return int_of(options, OPERATION_TIMEOUT_MS, OPERATION_TIMEOUT_DEFAULT_MS) / 1000


def _check_name(name: str, value: str, setter: str) -> None:
    known = _OURS | _OF_JAVA | CLIENT.keys() | PRODUCER.keys() | CONSUMER.keys()
    if name in known or name.startswith((*PROPERTIES, f"{AUTH_MAP}.")):
        return
    if name in _INSTEAD:
        if value.lower() in {"false", "durable", "exclusive"}:
            return
        raise ConfigurationError(
            f"{setter}: the option {name!r} is for Java's client only. Set {_INSTEAD[name]}."
        )
    near = difflib.get_close_matches(name, sorted(known), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigurationError(f"{setter}: there is no option {name!r}.{hint}")
