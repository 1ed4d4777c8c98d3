"""Random row functions of records that have a list and a dict of lists."""

from penstock.common.typeinfo import Types
from tests.tools.random_functions import FIELDS, Grammar

_LISTS = ((), ("",), ("x", None), ("x", "12"), ("a b", "7", "7"))
_DICTS = ({}, {"": ()}, {"x": (None, 2**63 - 1)}, {"12": (1, 2)}, {"a b": (3,), "x": None})
ALL_FIELDS = {
    **FIELDS,
    "l": Types.LIST(Types.STRING()),
    "m": Types.MAP(Types.STRING(), Types.LIST(Types.LONG())),
}
TYPE = Types.ROW_NAMED(list(ALL_FIELDS), list(ALL_FIELDS.values()))


def with_containers(choose, records):
    """The records, each with a list and a dict of its own behind its other values. Some are None."""
    made = []
    for values in records:
        a_list, a_dict = choose.choice(_LISTS), choose.choice(_DICTS)
        own = {key: None if one is None else list(one) for key, one in a_dict.items()}
        containers = [None if choose.random() < 0.1 else one for one in (list(a_list), own)]
        made.append((*values, *containers))
    return made


class ContainerGrammar(Grammar):
    """Every record has lists and dicts of its own."""

    fields = ALL_FIELDS

    def _number(self, depth):
        if self.random.random() < 0.7:
            return super()._number(depth)
        shapes = ("len({0})", "len({1})", "sum({1}.get({2}, ()))", "{0}.count({2})", "{1}[{2}][0]")
        return self._of_containers(shapes, depth)

    def _text(self, depth):
        if self.random.random() < 0.7:
            return super()._text(depth)
        shapes = ("{2}.join({0})", "{0}[-1]", "','.join(sorted({0} + [{2}]))", "min({1})")
        return self._of_containers(shapes, depth)

    def _truth(self, depth):
        if self.random.random() < 0.7:
            return super()._truth(depth)
        shapes = ("({2} in {0})", "({2} in {1})", "({0} is None)", "({0} == [{2}])", "bool({1})")
        return self._of_containers(shapes, depth)

    def _statement(self):
        if self.random.random() < 0.9:
            return super()._statement()
        shapes = ("{3} = {1}.get({2}); {3} += [1]", "{3} = {1}; {3} |= {1}", "v0 = v1 = {1} | {1}")
        return self._of_containers(shapes, 1)

    def _result(self):
        if self.random.random() < 0.7:
            return super()._result()
        return f"({self._any(1)}, {self._any(1)})"

    def _any(self, depth):
        if self.random.random() < 0.5:
            return super()._any(depth)
        shapes = (
            "{0}",
            "{1}",
            "({0} or {1})",
            "({0}, {0})",
            "({0} + {0})",
            "({0} * 2)",
            "{0}[:1]",
            "{1}.get({2})",
            "({1}.get({2}), {1}.get({2}))",
            "({1}, {1}.get({2}))",
            "({1} | {1})",
            "(SEEN | WORDS)",
            "[{0}, {1}]",
            "sorted({0})",
            "LIMITS",
        )
        return self._of_containers(shapes, depth)

    def _of_containers(self, shapes, depth):
        record = "r"
        read = (self._read(record, "l"), self._read(record, "m"), self._value(depth - 1, "text"))
        return self.random.choice(shapes).format(*read, self._new())

    def records(self, count):
        return with_containers(self.random, super().records(count))
