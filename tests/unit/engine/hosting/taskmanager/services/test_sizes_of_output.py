"""What functions print goes to the driver in messages of bounded size, whatever the size of a line."""

from penstock.engine.hosting.taskmanager.services.user_output import RoutedStream

HUGE = 250_000_000
MESSAGE = 2 << 20


def routed(*texts):
    sent = []
    stream = RoutedStream(lambda: (None, "Op"), sent.append, is_error=False)
    for text in texts:
        stream.write(text)
    stream.end_thread()
    return [one.text for one in sent]


def test_a_huge_line_is_cut_and_says_so():
    (text,) = routed("x" * HUGE + "\n")
    assert len(text) < MESSAGE
    assert text.endswith(" … cut: 250 million characters")


def test_many_lines_go_in_several_messages_and_none_is_lost():
    lines = [f"line {number} " + "x" * 100 for number in range(50_000)]
    sent = routed("\n".join(lines) + "\n")
    assert max(map(len, sent)) < MESSAGE
    assert [line for text in sent for line in text.split("\n")] == lines


def test_ordinary_lines_go_together():
    assert routed("a\nb\n", "c", "d\n") == ["a\nb", "cd"]
