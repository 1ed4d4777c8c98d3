"""The documents of jobs in Kubernetes: ConfigMaps, replaced on condition that their resourceVersion is still the same.

They have Flink's labels: `kubectl get configmaps -l app=<cluster-id>,configmap-type=high-availability`. The driver may
get, list, create and update ConfigMaps of its namespace. Source: Flink KubernetesStateHandleStore,
Fabric8FlinkKubeClient (checkAndUpdateConfigMap).
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from penstock.engine.hosting.jobmanager.ha.settings import KubernetesSettings
from penstock.engine.model.errors import ConfigurationError

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FIELD: Final = "job"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class ConfigMapDocuments:
    """Connects with the first step. Any thread."""

    def __init__(self, settings: KubernetesSettings) -> None:
        """Raises: ConfigurationError: the package kubernetes is missing."""
        self._kubernetes = _kubernetes()
        self._settings = settings
        self._labels = f"app={settings.cluster_id},configmap-type=high-availability"

    def place_of(self, name: str) -> str:
        return f"configmap/{self._name(name)}"

    def names(self) -> Iterable[str]:
        found = self._ask("list_namespaced_config_map", (), label_selector=self._labels)
        before, after = self._name("|").split("|")
        names = [one.metadata.name for one in found.items]
        return [name.removeprefix(before).removesuffix(after) for name in names]

    def get(self, name: str) -> tuple[bytes, str] | None:
        found = self._ask("read_namespaced_config_map", (_NOT_FOUND,), name=self._name(name))
        if found is None:
            return None
        return (found.data or {}).get(_FIELD, "").encode(), found.metadata.resource_version

    def put(self, name: str, data: bytes, version: str | None) -> bool:
        own = self._name(name)
        labels = dict(label.split("=") for label in self._labels.split(","))
        metadata = {"name": own, "labels": labels, "resourceVersion": version}
        body = {"metadata": metadata, "data": {_FIELD: data.decode()}}
        if version is None:
            found = self._ask("create_namespaced_config_map", (_CONFLICT,), body=body)
        else:
            method, refused = "replace_namespaced_config_map", (_CONFLICT, _NOT_FOUND)
            found = self._ask(method, refused, name=own, body=body)
        return found is not None

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client[0].api_client.close()

    # ------------------------------------------------------------------ private

    def _name(self, name: str) -> str:
        return f"{self._settings.cluster_id}-{name}-config-map"

    def _ask(self, method: str, refusals: tuple[int, ...], **values: Any) -> Any:
        """None: the API server answered with one of these. Raises OSError."""
        from urllib3.exceptions import HTTPError

        api, namespace = self._client
        call: Callable[..., Any] = getattr(api, method)
        try:
            return call(namespace=namespace, _request_timeout=self._settings.limit_s, **values)
        except self._kubernetes.client.ApiException as error:
            if error.status in refusals:
                return None
            raise OSError(
                f"Kubernetes refuses ConfigMaps of namespace {namespace!r}: {_message(error)}"
            ) from error
        except HTTPError as error:
            raise OSError(f"Kubernetes does not answer: {error}") from error

    @functools.cached_property
    def _client(self) -> tuple[Any, str]:
        """The API, and the namespace: of this pod, or of kubectl's settings."""
        client, config = self._kubernetes.client, self._kubernetes.config
        found, own = client.Configuration(), None
        try:
            config.load_incluster_config(client_configuration=found)
            own = _OWN_NAMESPACE.read_text()
        except config.ConfigException:
            try:
                config.load_kube_config(client_configuration=found)
                own = config.list_kube_config_contexts()[1]["context"].get("namespace")
            except config.ConfigException as error:
                raise ConfigurationError(
                    "high-availability.type is KUBERNETES, but this driver runs in no pod that has "
                    f"a service account's token, and kubectl has no settings here: {error}"
                ) from error
        found.retries = 0  # Each would be logged as a warning.
        api = client.CoreV1Api(client.ApiClient(found))
        return api, self._settings.namespace or own or "default"


def _message(error: Any) -> str:
    """The words of the API server."""
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"


@functools.cache
def _kubernetes() -> Any:
    try:
        for name in ("client", "config"):
            importlib.import_module(f"kubernetes.{name}")
        return importlib.import_module("kubernetes")
    except ImportError as error:
        raise ConfigurationError(
            "high-availability.type is KUBERNETES, but the package 'kubernetes' cannot be imported "
            f"by this driver ({error}). Install it: pip install 'penstock[kubernetes]'."
        ) from None
