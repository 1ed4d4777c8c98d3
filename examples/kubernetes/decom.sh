#!/bin/sh
# Spark runs this before a pod ends (`spark.kubernetes.decommission.script`): the executor gives its tasks away while its grace lasts.
pid=$(pgrep -o java) || exit 0
kill -PWR "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.2; done
