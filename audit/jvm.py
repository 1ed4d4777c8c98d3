"""How JVMs are started that live briefly: those of tests and of the audit.

Two thirds of the processor time of a Spark that runs one small job is the loading of classes. With the class archive 8 s become 6
for a local session, 24 become 17 for a cluster of two executors.
"""

from typing import Final

from penstock.engine.hosting.spark.class_archive import java_option

SHORT_LIVED_JVM: Final = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java_option()}"
"""Nothing runs long enough to be worth compiling well, and many start beside each other."""
