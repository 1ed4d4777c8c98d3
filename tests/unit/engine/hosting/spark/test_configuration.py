"""What a SparkContext is asked once: of each context its own answer, and none of one that is gone."""

import gc
import weakref
from types import SimpleNamespace

from penstock.engine.hosting.spark.slots import configuration_of, page_of


class Context:
    """`asked`: how often the JVM was."""

    def __init__(self, **conf):
        self.conf = conf
        self.asked = 0

    def getConf(self):  # ruff: ignore[invalid-function-name] - PySpark's
        self.asked += 1
        return SimpleNamespace(getAll=self.conf.items)

    @property
    def uiWebUrl(self):  # ruff: ignore[invalid-function-name] - PySpark's
        self.asked += 1
        return self.conf["page"]


def test_each_context_is_asked_once_and_answers_for_itself():
    first, second = Context(a="1"), Context(a="2")
    assert [configuration_of(one)["a"] for one in (first, second, first, second)] == list("1212")
    assert (first.asked, second.asked) == (1, 1)


def test_a_context_without_pages_is_not_asked_again():
    context = Context(page=None)
    assert page_of(context) is page_of(context) is None
    assert context.asked == 1


def test_contexts_are_not_kept():
    context = Context(a="1")
    configuration_of(context)
    known = weakref.ref(context)
    del context
    gc.collect()
    assert known() is None
