"""Threads of a dump in the form of Java's ThreadInfo."""

from penstock.engine.hosting.os.thread_stacks import Frame, ThreadState, thread_text

FRAMES = [Frame("app.parse", "app.py", 12), Frame("app.run", "app.py", 3)]


def test_a_thread_has_name_number_state_and_its_frames_innermost_first():
    text = thread_text("Map (1/4)#0", 77, ThreadState.RUNNABLE, FRAMES, 50)
    assert text == (
        '"Map (1/4)#0" Id=77 RUNNABLE\n\tat app.parse(app.py:12)\n\tat app.run(app.py:3)\n\n'
    )


def test_a_deep_stack_ends_in_dots():
    text = thread_text("t", 1, ThreadState.WAITING, FRAMES, 1)
    assert text == '"t" Id=1 WAITING\n\tat app.parse(app.py:12)\n\t...\n\n'
