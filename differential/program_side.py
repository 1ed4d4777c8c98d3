"""Runs programs with one of the two packages: `python program_side.py PACKAGE PROGRAMS RESULTS`.

Imports nothing of Penstock but the package that it is told, so that PyFlink's interpreter can run it. PROGRAMS has a JSON
line for each group: its number, mode, chaining, and the programs, which become one job. RESULTS gets a line for each
group: the lines of output by program, or the error.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback


def names(package):
    """What a program may use without an import."""
    found = {}
    for module in (
        "common",
        "datastream",
        "datastream.functions",
        "datastream.window",
        "datastream.state",
    ):
        loaded = importlib.import_module(f"{package}.{module}")
        found.update({
            name: getattr(loaded, name) for name in dir(loaded) if not name.startswith("_")
        })
    watermarks = importlib.import_module(f"{package}.common.watermark_strategy")

    class Second(watermarks.TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return value[1]

    found["Second"] = Second
    return found


def told(value):
    """A value as text: the same text only for the same value of the same type."""
    kind = type(value).__name__
    if isinstance(value, (tuple, list)) and kind in ("tuple", "list"):
        return f"{kind}({', '.join(map(told, value))})"
    if kind == "Row":
        fields = getattr(value, "_fields", None)
        return f"Row({fields}, {', '.join(map(told, list(value)))})"
    return f"{kind} {value!a}"


def recorder(known, path):
    """A sink: a function that writes a line for each record. A timestamp that is none is the same in both."""

    class Recorder(known["ProcessFunction"]):
        def __init__(self, name):
            self.name = name

        def open(self, ctx):
            self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def process_element(self, value, ctx):
            line = f"{self.name}\t{ctx.timestamp()}\t{told(value)}\n"
            os.write(self.file, line.encode())
            return []

        def close(self):
            if getattr(self, "file", None) is not None:
                os.close(self.file)

    return Recorder


def environment(known, package, group):
    config = known["Configuration"]()
    if package == "pyflink":
        # All tasks of a job of BATCH run at once, in one process of Python: each start of one takes seconds.
        config.set_string("execution.batch-shuffle-mode", "ALL_EXCHANGES_PIPELINED")
        config.set_string("jobmanager.scheduler", "Default")
    env = known["StreamExecutionEnvironment"].get_execution_environment(config)
    env.set_parallelism(1)
    if package == "penstock":
        env.use_executor(importlib.import_module("penstock.testing").MiniCluster(1).executor())
    if group["is_batch"]:
        env.set_runtime_mode(known["RuntimeExecutionMode"].BATCH)
    if not group["has_chains"]:
        env.disable_operator_chaining()
    return env


def run(package, group, folder):
    """Lines of each program's output. Raises whatever the job raises."""
    known = names(package)
    env = environment(known, package, group)
    paths = {}
    for seed, text in group["programs"]:
        space = dict(known)
        exec(text, space)
        paths[seed] = path = os.path.join(folder, str(seed))
        record = recorder(known, path)
        for name, stream in space["build"](env).items():
            stream.process(record(name), known["Types"].INT())
    env.execute(f"group {group['number']}")
    return {seed: read(path) for seed, path in paths.items()}


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return sorted(file.read().splitlines())


def main(package, programs, results):
    with open(programs, encoding="utf-8") as asked, open(results, "a", encoding="utf-8") as answers:
        for line in asked:
            group = json.loads(line)
            with tempfile.TemporaryDirectory() as folder:
                try:
                    answer = {"lines": run(package, group, folder)}
                except Exception:
                    answer = {"error": traceback.format_exc()[-4000:]}
            answers.write(json.dumps({"number": group["number"], **answer}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
