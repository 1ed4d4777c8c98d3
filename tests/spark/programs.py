"""Programs that several tests run, and what they must give by an independent computation."""

from collections import Counter

from penstock.datastream import StreamExecutionEnvironment

LINES = [f"line {i} the quick brown fox {i % 7} jumps over {i % 13} dogs" for i in range(2000)]


def environment(parallelism: int = 2, **settings: str) -> StreamExecutionEnvironment:
    from penstock.common import Configuration

    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    return env.set_parallelism(parallelism)


def word_count(env: StreamExecutionEnvironment, lines=LINES):
    return (
        env
        .from_collection(lines)
        .rebalance()
        .flat_map(lambda line: [(word, 1) for word in line.split()])
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )


def expected_counts(lines=LINES) -> Counter:
    return Counter(word for line in lines for word in line.split())


def last_counts(updates) -> dict:
    counts: dict = {}
    for word, count in updates:
        counts[word] = max(count, counts.get(word, 0))
    return counts
