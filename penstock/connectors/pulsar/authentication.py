"""Authentication: Java's plugins, by their class names, as the Python client has them. Does not open connections.

Source: Flink's PulsarOptions.PULSAR_AUTH_PLUGIN_CLASS_NAME; AuthenticationToken, -Tls, -Basic and -OAuth2 of Pulsar's
client.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.connectors.pulsar.options import AUTH_CLASS, AUTH_MAP, AUTH_PARAMS, Options
from penstock.engine.model.errors import ConfigurationError

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
            f"{where}: the authentication {plugin!r} is a class of Java's client. The Python client has AuthenticationToken, "
            "AuthenticationTls, AuthenticationBasic and AuthenticationOAuth2."
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
                f"{where}: the topics of a namespace cannot be listed with an authentication by oauth2. Name the topics: "
                "set_topics(['...'])."
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
