"""What the builders of source and sink have in common: options, and settings that are looked at one by one."""

from __future__ import annotations

from typing import Any, Self

from penstock.common.config_options import ConfigOption
from penstock.datastream.connectors.messaging.builder import MessagingBuilder
from penstock.datastream.connectors.pulsar.authentication import checked_parameters, method_of
from penstock.datastream.connectors.pulsar.options import (
    ADMIN_URL,
    AUTH_CLASS,
    AUTH_MAP,
    AUTH_PARAMS,
    SERVICE_URL,
    Options,
    with_option,
    with_options,
)


class PulsarBuilder(MessagingBuilder):
    """`settings`: a frozen dataclass that has `options`."""

    def set_admin_url(self, admin_url: str) -> Self:
        """Taken for the programs that set it; nothing here needs it."""
        return self.set_config(ADMIN_URL, admin_url)

    def set_service_url(self, service_url: str) -> Self:
        """pulsar://host:6650, several hosts separated by commas; pulsar+ssl:// with TLS."""
        return self.set_config(SERVICE_URL, service_url)

    def set_authentication(
        self, auth_plugin_class_name: str, auth_params_string: str | dict[str, str]
    ) -> Self:
        """A class of Java's client: AuthenticationToken, -Tls, -Basic or -OAuth2, with its package or without."""
        options = self._settings.options
        return self._with(
            options=with_authentication(options, auth_plugin_class_name, auth_params_string)
        )

    def set_config(self, key: str | ConfigOption[Any], value: Any) -> Self:
        """An option as Flink has it, pulsar.client. and so on. Raises: ConfigurationError: nobody knows it."""
        return self._with(options=with_option(self._settings.options, key, value, "set_config"))

    def set_properties(self, config: dict[str, Any]) -> Self:
        return self._set_all(config, "set_properties")

    def _set_all(self, config: dict[str, Any], setter: str) -> Self:
        return self._with(options=with_options(self._settings.options, config, setter))


def with_authentication(options: Options, plugin: str, parameters: object) -> dict[str, str]:
    """`parameters`: text or dict. Raises: ConfigurationError: a plugin that the Python client does not have."""
    setter = "set_authentication"
    found = with_option(options, AUTH_CLASS, plugin, setter)
    method_of(found, setter)
    parameters = checked_parameters(parameters, setter)
    key = AUTH_PARAMS if isinstance(parameters, str) else AUTH_MAP
    return with_option(found, key, parameters, setter)
