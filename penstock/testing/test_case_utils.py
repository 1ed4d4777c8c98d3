"""A stand-in for PyFlink's base classes for tests, which says what to use instead. Source:
pyflink.testing.test_case_utils.
"""

from penstock.common.absent import absent

_INSTEAD = (
    "In any test env.use_executor(penstock.testing.MiniCluster().executor()) runs jobs in the test's process; CollectingSink and "
    "StreamHarness are next to it."
)

__getattr__ = absent(
    __name__,
    dict.fromkeys(
        (
            "PyFlinkTestCase",
            "PyFlinkITTestCase",
            "PyFlinkUTTestCase",
            "PyFlinkStreamingTestCase",
            "PyFlinkStreamTableTestCase",
            "PyFlinkBatchTableTestCase",
            "PyFlinkBatchTestCase",
            "PyFlinkDataStreamTestCase",
            "PythonAPICompletenessTestCase",
        ),
        _INSTEAD,
    ),
)
