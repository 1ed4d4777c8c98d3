"""Flink's options `pulsar.client.`, `.producer.`, `.consumer.`, `.source.` and `.sink.`, and how they are applied.

Options that the Python client supports are passed on under its names. Options that only tune Java's client are ignored.
Options that it cannot support, and unknown ones, are errors. Does not know any client.
Source: Flink's PulsarOptions, PulsarSourceOptions, PulsarSinkOptions.
"""

from __future__ import annotations

import difflib
import json
import ssl
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from penstock.common.config_options import ConfigOption
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.api.messaging.properties import checked_property, flag_of, int_of
from penstock.engine.model.errors import ConfigurationError

# ---------------------------------------------------------------------- options


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
    **dict.fromkeys(
        (
            "pulsar.client.useKeyStoreTls",
            "pulsar.client.tlsTrustStorePath",
            "pulsar.client.tlsTrustStoreType",
        ),
        "pulsar.client.tlsTrustCertsFilePath, a file of PEM certificates",
    ),
    "pulsar.client.tlsTrustStorePassword": "pulsar.client.tlsTrustCertsFilePath, which needs no password",
    "pulsar.client.proxyServiceUrl": "pulsar.client.serviceUrl, with the address of the proxy",
    "pulsar.consumer.subscriptionMode": "nothing: a subscription is durable here",
    "pulsar.consumer.subscriptionType": "nothing: a subscription is exclusive here",
    **{
        f"pulsar.consumer.deadLetterPolicy.{one}": "nothing: no message is redelivered or given up here"
        for one in ("maxRedeliverCount", "deadLetterTopic", "retryLetterTopic")
    },
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


# ---------------------------------------------------------------------- authentication
# Authentication: Java's plugins, by their class names, as the Python client has them. Does not open connections.
#
# Source: Flink's PulsarOptions.PULSAR_AUTH_PLUGIN_CLASS_NAME; AuthenticationToken, -Tls, -Basic and -OAuth2 of Pulsar's
# client.


TOKEN, TLS, BASIC, OAUTH2 = "token", "tls", "basic", "oauth2"
_METHODS: Final = {
    "AuthenticationToken": TOKEN,
    "AuthenticationTls": TLS,
    "AuthenticationTLS": TLS,
    "AuthenticationBasic": BASIC,
    "AuthenticationOAuth2": OAUTH2,
    "AuthenticationOauth2": OAUTH2,
}
_NEEDS: Final = {
    TOKEN: ("token",),
    TLS: ("tlsCertFile", "tlsKeyFile"),
    BASIC: ("userId", "password"),
    OAUTH2: ("issuerUrl", "privateKey"),
}


def method_of(options: Options, where: str) -> str | None:
    """The method of the plugin, one of four; None: no authentication.

    Raises: ConfigurationError: only the Java client has the plugin.
    """
    plugin = options.get(AUTH_CLASS)
    if plugin is None:
        return None
    method = _METHODS.get(plugin.rpartition(".")[2])
    if method is None:
        raise ConfigurationError(
            f"{where}: the authentication {plugin!r} is a class of Java's client. The Python "
            "client has AuthenticationToken, AuthenticationTls, AuthenticationBasic and "
            "AuthenticationOAuth2."
        )
    return method


def parameters_of(options: Options, where: str) -> dict[str, str]:
    """The parameters, as Java's plugins have them; a token file is read.

    Raises: ConfigurationError: some are missing. The text does not show values, because they are secrets.
    """
    method = method_of(options, where)
    if method is None:
        return {}
    prefix = f"{AUTH_MAP}."
    found = {
        key.removeprefix(prefix): one for key, one in options.items() if key.startswith(prefix)
    }
    found = found or _parsed(options.get(AUTH_PARAMS, ""), method)
    if method == TOKEN and "file" in found:
        found["token"] = _token_in(found["file"], where)
    missing = [name for name in _NEEDS[method] if not found.get(name)]
    if missing:
        raise ConfigurationError(
            f"{where}: the authentication by {method} needs {' and '.join(_NEEDS[method])}, but "
            f"{', '.join(missing)} is missing in the parameters. Give them as a dict, as JSON, or "
            "as 'name:value,name:value'."
        )
    return found


def authentication_of(options: Options, pulsar: Any, where: str) -> Any:
    """The client's authentication object; None: no authentication. Raises: ConfigurationError."""
    found = parameters_of(options, where)
    match method_of(options, where):
        case "token":
            return pulsar.AuthenticationToken(found["token"])
        case "tls":
            return pulsar.AuthenticationTLS(found["tlsCertFile"], found["tlsKeyFile"])
        case "basic":
            return pulsar.AuthenticationBasic(found["userId"], found["password"])
        case "oauth2":
            names = {"issuerUrl": "issuer_url", "privateKey": "private_key"}
            parameters = {names.get(key, key): value for key, value in found.items()}
            return pulsar.AuthenticationOauth2(json.dumps(parameters))
        case _:
            return None


def handshake(options: Options, where: str, context: ssl.SSLContext | None) -> tuple[str, bytes]:
    """The method and the proof for a connection of our own; a certificate is loaded into `context`.

    Raises: ConfigurationError: only the client library supports the method.
    """
    found = parameters_of(options, where)
    match method_of(options, where):
        case "token":
            return TOKEN, found["token"].encode()
        case "basic":
            return BASIC, f"{found['userId']}:{found['password']}".encode()
        case "tls":
            if context is not None:
                context.load_cert_chain(found["tlsCertFile"], found["tlsKeyFile"])
            return TLS, b""
        case "oauth2":
            raise ConfigurationError(
                f"{where}: the topics of a namespace cannot be listed with an authentication by "
                "oauth2. Name the topics: set_topics(['...'])."
            )
        case _:
            return "none", b""


def _parsed(text: str, method: str) -> dict[str, str]:
    """The parameters from JSON, name:value pairs or, for a token, the token itself."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            found = {}
        return {str(key): str(value) for key, value in found.items()} if found else {}
    if method == TOKEN:
        kind, mark, rest = text.partition(":")
        if kind == "file":
            return {"file": rest}
        return {"token": rest if mark and kind == "token" else text}
    pairs = (part.partition(":") for part in text.split(",") if part)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _token_in(path: str, where: str) -> str:
    """The token in a file. `path`: may be a file: URL."""
    file = Path("/" + path.lstrip("/")) if path.startswith("/") else Path(path)
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot read the token's file: {error}.") from error


def checked_parameters(parameters: object, setter: str) -> str | Mapping[str, str]:
    """The parameters. Raises: ConfigurationError: they are neither text nor a dict."""
    if isinstance(parameters, str | Mapping):
        return parameters
    raise ConfigurationError(
        f"{setter}: expected the parameters as text or as a dict, got {type(parameters).__name__}."
    )


# ---------------------------------------------------------------------- builders
# What the builders of source and sink share: options, and settings that are checked one by one.


class PulsarBuilder(SettingsBuilder):
    """`settings`: a frozen dataclass that has `options`."""

    def set_admin_url(self, admin_url: str) -> Self:
        """Accept an admin URL, and ignore it: nothing here needs it."""
        return self.set_config(ADMIN_URL, admin_url)

    def set_service_url(self, service_url: str) -> Self:
        """Set the service URL: pulsar://host:6650, several hosts separated by commas; pulsar+ssl:// with TLS."""
        return self.set_config(SERVICE_URL, service_url)

    def set_authentication(
        self, auth_plugin_class_name: str, auth_params_string: str | dict[str, str]
    ) -> Self:
        """Set the authentication: a class of Java's client: AuthenticationToken, -Tls, -Basic or -OAuth2.

        The package may be left out.
        """
        options = self.settings.options
        return self._with(
            options=with_authentication(options, auth_plugin_class_name, auth_params_string)
        )

    def set_config(self, key: str | ConfigOption[Any], value: Any) -> Self:
        """Set an option by Flink's name, such as pulsar.client.*. Raises: ConfigurationError: there is no such option."""
        return self._with(options=with_option(self.settings.options, key, value, "set_config"))

    def set_properties(self, config: dict[str, Any]) -> Self:
        """Set several options by Flink's names. Raises: ConfigurationError: there is no such option."""
        return self._set_all(config, "set_properties")

    def _set_all(self, config: dict[str, Any], setter: str) -> Self:
        return self._with(options=with_options(self.settings.options, config, setter))


def with_authentication(options: Options, plugin: str, parameters: object) -> dict[str, str]:
    """The options with this authentication. `parameters`: text or dict.

    Raises: ConfigurationError: the Python client does not have the plugin.
    """
    setter = "set_authentication"
    found = with_option(options, AUTH_CLASS, plugin, setter)
    method_of(found, setter)
    parameters = checked_parameters(parameters, setter)
    key = AUTH_PARAMS if isinstance(parameters, str) else AUTH_MAP
    return with_option(found, key, parameters, setter)
