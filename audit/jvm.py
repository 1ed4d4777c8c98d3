"""Settings of JVMs that live for a minute, of the auditor's and of tests. Knows nothing else."""

from typing import Final

SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Nothing runs long enough to be worth compiling well, and many start beside each other."""
