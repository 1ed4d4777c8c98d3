"""Codecs of points in time: what is no point in time is refused."""

import pandas as pd
import pytest

from penstock.common import Row, Types
from penstock.engine.runtime.codecs.convert import enforce_values, to_columns
from penstock.engine.runtime.elements import RowBatch


@pytest.mark.parametrize(
    "kind",
    [Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.TIMESTAMP_LTZ(), Types.SQL_TIME()],
    ids=str,
)
def test_nat_of_pandas_fits_no_time_and_becomes_no_date(kind):
    for declared, value in (
        (kind, pd.NaT),
        (Types.LIST(kind), [pd.NaT]),
        (Types.ROW([kind]), Row(pd.NaT)),
    ):
        with pytest.raises(TypeError, match="NaT does not fit|NaTType does not fit"):
            enforce_values([value], declared)
        with pytest.raises(TypeError, match="got NaT"):
            to_columns(RowBatch([value]), declared)
