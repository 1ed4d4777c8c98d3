"""Assignments and checkpoints. Expectations: docs/spec/sources-and-sinks.md#sources."""

from penstock.engine.machines.sources import SplitAssignmentTracker


def test_without_a_checkpoint_everything_comes_back_in_order_once():
    tracker = SplitAssignmentTracker()
    tracker.assign(0, ["a", "b"])
    tracker.assign(1, ["c"])
    tracker.assign(0, ["d"])
    assert tracker.reset(0) == ["a", "b", "d"]
    assert tracker.reset(0) == []
    assert tracker.reset(1) == ["c"]


def test_only_what_was_assigned_after_the_restored_checkpoint_comes_back():
    tracker = SplitAssignmentTracker()
    tracker.assign(0, ["a"])
    tracker.checkpoint(1)
    tracker.assign(0, ["b"])
    tracker.checkpoint(2)
    tracker.assign(0, ["c"])
    tracker.complete(1)
    assert tracker.reset(0, 1) == ["b", "c"]


def test_a_checkpoint_that_did_not_complete_gives_back_what_it_holds():
    tracker = SplitAssignmentTracker()
    tracker.assign(0, ["a"])
    tracker.checkpoint(1)
    assert tracker.reset(0) == ["a"]


def test_a_completed_checkpoint_also_covers_the_older_ones():
    tracker = SplitAssignmentTracker()
    for number, split in enumerate("abc", 1):
        tracker.assign(0, [split])
        tracker.checkpoint(number)
    tracker.complete(2)
    assert tracker.reset(0, 2) == ["c"]
