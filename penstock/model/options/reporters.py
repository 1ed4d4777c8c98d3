"""Options of metric reporters.

Does not know their readers. Source: Flink MetricOptions, PrometheusPushGatewayReporterOptions, PrometheusReporterFactory. Differs:
`penstock.*` keys are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import (
    OptionGroup,
    duration,
    flag,
    pairs,
    separated_texts,
    text,
    texts,
)

PREFIX: Final = "metrics.reporter."


class ReporterOptions(OptionGroup, title="Metric reporters"):
    """Which metrics go where. `<name>` is a name of your choice, without dots; a driver may have several reporters. See [Reporters](../guides/metrics.md#reporters)."""

    NAMES: Final = texts(
        "metrics.reporters",
        None,
        (
            "Names of the reporters to start. Not set: all that have a factory.class. The driver "
            "reports for all processes of its jobs."
        ),
    )
    FACTORY: Final = text(
        "metrics.reporter.<name>.factory.class",
        None,
        "What kind of reporter it is: one of Flink's factories. Unknown ones are logged.",
    )
    INTERVAL: Final = duration(
        "metrics.reporter.<name>.interval",
        "10 s",
        "How often a reporter that pushes does so. The first report comes after one interval.",
    )
    DELIMITER: Final = text(
        "metrics.reporter.<name>.scope.delimiter",
        ".",
        (
            "One character between the parts of an identifier. Not set, or longer: "
            "metrics.scope.delimiter."
        ),
    )
    EXCLUDED: Final = separated_texts(
        "metrics.reporter.<name>.scope.variables.excludes",
        ".",
        "Variables that reporters with tags leave out, without brackets, separated by `;`.",
    )
    ADDITIONAL: Final = pairs(
        "metrics.reporter.<name>.scope.variables.additional",
        None,
        "Variables that reporters with tags add to all metrics.",
    )
    INCLUDES: Final = separated_texts(
        "metrics.reporter.<name>.filter.includes",
        "*:*:*",
        (
            "Which metrics are reported: `scope[:name[,name][:type[,type]]]`, several separated by "
            "`;`. `*` is any text. Types: counter, gauge, meter, histogram."
        ),
    )
    EXCLUDES: Final = separated_texts(
        "metrics.reporter.<name>.filter.excludes",
        None,
        "Which metrics are not reported, although filter.includes has them. Same form.",
    )


class PrometheusOptions(OptionGroup, title="Prometheus"):
    """Own options of the reporters `PrometheusReporterFactory` and `PrometheusPushGatewayReporterFactory`. They need the extra `penstock[prometheus]`."""

    PORT: Final = text(
        "metrics.reporter.<name>.port",
        "9249",
        "Ports to try, for example 9249,9250-9260. The first free one is taken. 0: any free one.",
    )
    BIND_ADDRESS: Final = text(
        "penstock.metrics.prometheus.bind-address",
        "localhost",
        (
            "The address at which reporters that Prometheus scrapes listen. Whoever reaches it "
            "reads all metrics. In Flink: all addresses."
        ),
    )
    FILTERS_VALUES: Final = flag(
        "metrics.reporter.<name>.filterLabelValueCharacters",
        "true",
        "Whether characters other than `a-zA-Z0-9:_` become `_` in values of labels too.",
    )
    ALLOWED: Final = texts(
        "metrics.reporter.<name>.allowList",
        None,
        (
            "If set, only metrics are reported whose scope and name, joined by dots, contain one "
            "of these texts."
        ),
    )
    HOST_URL: Final = text(
        "metrics.reporter.<name>.hostUrl",
        None,
        "PushGateway: its address, for example `http://localhost:9091`. Required.",
    )
    JOB_NAME: Final = text(
        "metrics.reporter.<name>.jobName",
        None,
        "PushGateway: the name of the group that is pushed.",
    )
    RANDOM_SUFFIX: Final = flag(
        "metrics.reporter.<name>.randomJobNameSuffix",
        "true",
        "PushGateway: whether 32 random digits follow that name, so that drivers do not meet.",
    )
    DELETES: Final = flag(
        "metrics.reporter.<name>.deleteOnShutdown",
        "true",
        "PushGateway: whether the group is deleted when the driver ends.",
    )
    GROUPING_KEY: Final = text(
        "metrics.reporter.<name>.groupingKey",
        None,
        "PushGateway: further labels of the group: `k1=v1;k2=v2`.",
    )
    USERNAME: Final = text(
        "metrics.reporter.<name>.username",
        None,
        "PushGateway: the user, with metrics.reporter.<name>.password.",
    )
    PASSWORD: Final = text(
        "metrics.reporter.<name>.password", None, "PushGateway: the password of that user."
    )
