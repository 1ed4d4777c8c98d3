"""Nodes that get no new subtasks. Expectations: docs/spec/elasticity.md#block-list."""

from penstock.machines.resources.blocklist import BlockedNode, Blocklist

FIRST = BlockedNode("host", "slow", 100)


def test_a_node_is_blocked_until_its_end_is_seen():
    blocklist = Blocklist()
    assert blocklist.add([FIRST]) == (FIRST,)
    assert blocklist.is_blocked("host")
    assert not blocklist.is_blocked("other")
    assert blocklist.remove_ended(99) == ()
    assert blocklist.remove_ended(100) == (FIRST,)
    assert not blocklist.is_blocked("host")
    assert blocklist.nodes == ()


def test_the_later_end_stays():
    blocklist = Blocklist()
    later = BlockedNode("host", "slow again", 200)
    assert blocklist.add([FIRST, later]) == (later,)
    assert blocklist.add([FIRST]) == ()
    assert blocklist.nodes == (later,)


def test_of_equal_ends_the_newer_entry_stays():
    blocklist = Blocklist()
    blocklist.add([FIRST])
    newer = BlockedNode("host", "another cause", 100)
    assert blocklist.add([newer]) == (newer,)
    assert blocklist.nodes == (newer,)


def test_the_same_again_changes_nothing():
    blocklist = Blocklist()
    blocklist.add([FIRST])
    assert blocklist.add([FIRST]) == ()


def test_each_node_ends_by_itself():
    blocklist = Blocklist()
    blocklist.add([FIRST, BlockedNode("b", "slow", 50), BlockedNode("c", "slow", 70)])
    assert [one.node for one in blocklist.remove_ended(70)] == ["b", "c"]
    assert [one.node for one in blocklist.nodes] == ["host"]
