import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.metrics.quantiles import quantile


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50),
    st.floats(0.001, 0.999),
)
def test_a_quantile_is_that_of_commons_math(values, q):
    """numpy calls the rule weibull."""
    expected = np.percentile(values, 100 * q, method="weibull")
    assert np.isclose(quantile(sorted(values), q), expected, atol=1e-6)


def test_without_values_there_is_no_quantile():
    assert np.isnan(quantile([], 0.5))
