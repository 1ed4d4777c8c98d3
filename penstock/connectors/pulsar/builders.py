"""What the builders of source and sink share: options, and settings that are checked one by one."""

from __future__ import annotations

from typing import Any, Self

from penstock.common.config_options import ConfigOption
from penstock.connectors.api.builder import SettingsBuilder
from penstock.connectors.pulsar.authentication import checked_parameters, method_of
from penstock.connectors.pulsar.options import (
    ADMIN_URL,
    AUTH_CLASS,
    AUTH_MAP,
    AUTH_PARAMS,
    SERVICE_URL,
    Options,
    with_option,
    with_options,
)


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
        options = self._settings.options
        return self._with(
            options=with_authentication(options, auth_plugin_class_name, auth_params_string)
        )

    def set_config(self, key: str | ConfigOption[Any], value: Any) -> Self:
        """Set an option by Flink's name, such as pulsar.client.*. Raises: ConfigurationError: there is no such option."""
        return self._with(options=with_option(self._settings.options, key, value, "set_config"))

    def set_properties(self, config: dict[str, Any]) -> Self:
        """Set several options by Flink's names. Raises: ConfigurationError: there is no such option."""
        return self._set_all(config, "set_properties")

    def _set_all(self, config: dict[str, Any], setter: str) -> Self:
        return self._with(options=with_options(self._settings.options, config, setter))


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
