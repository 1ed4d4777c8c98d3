"""When the connections of a job are encrypted (`hosting/program/encryption.py`)."""

import pytest

from penstock.hosting.program.encryption import identity_of
from penstock.model.config import Settings

SSL = "security.ssl.internal.enabled"
CRYPTO, SPARK_SSL = "spark.network.crypto.enabled", "spark.ssl.enabled"


@pytest.mark.parametrize(
    ("settings", "spark", "is_encrypted"),
    [
        ({}, {}, False),
        ({SSL: "true"}, {}, True),
        ({SSL: "false"}, {}, False),
        ({}, {CRYPTO: "true"}, True),
        ({}, {SPARK_SSL: "True"}, True),
        ({}, {CRYPTO: "false", SPARK_SSL: "false"}, False),
        ({SSL: "false"}, {CRYPTO: "true", SPARK_SSL: "true"}, False),
        ({SSL: "true"}, {CRYPTO: "false"}, True),
    ],
)
def test_the_program_decides_and_otherwise_sparks_configuration(settings, spark, is_encrypted):
    assert (identity_of(Settings(settings), spark) is not None) is is_encrypted


def test_each_job_has_a_certificate_of_its_own():
    first, second = (identity_of(Settings({SSL: "true"}), {}) for _ in range(2))
    assert first != second
