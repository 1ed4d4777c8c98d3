"""Which RDDs give the subtasks of a stage their reduce partitions: in the order of the subtasks, each partition where it belongs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.spark.batch.spark_runner import segments, without_gaps

PARTITIONS = st.sets(st.integers(0, 30), min_size=1, max_size=8).map(sorted)


@given(st.lists(PARTITIONS, min_size=1, max_size=8))
def test_segments_give_each_subtask_its_partitions(reads):
    found = []
    for partitions, is_one_subtask in segments(reads):
        assert all(low < high for low, high in pairwise(partitions))  # as a pruned RDD has them
        found += [partitions] if is_one_subtask else [[one] for one in partitions]
    assert found == reads


@given(PARTITIONS)
def test_ranges_have_the_same_numbers_and_a_gap_between_them(partitions):
    ranges = list(without_gaps(partitions))
    assert [one for first, stop in ranges for one in range(first, stop)] == partitions
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
