"""Each system metric of Flink 2.3 is told by the guide: what it means here, or why it is not measured.

Source: docs/ops/metrics.md of Flink, and the metrics that a cluster of 2.3 reports. Which of them a job reports is tested in `tests/jobs`.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/metrics.md").read_text(encoding="utf-8")
MEASURED, _, NOT_MEASURED = GUIDE.partition("## What is not measured")

HERE = [
    "Load",
    "Time",
    "Heap",
    "NonHeap",
    "Metaspace",
    "Direct",
    "Mapped",
    "Threads.Count",
    "GarbageCollector",
    "TimeMsPerSecond",
    "ClassesLoaded",
    "ClassesUnloaded",
    "Open",
    "Max",
    "Status.Flink.Memory.Managed.Used",
    "TotalMemorySegments",
    "AvailableMemorySegments",
    "UsedMemorySegments",
    "TotalMemory",
    "AvailableMemory",
    "UsedMemory",
    "RequestedMemoryUsage",
    "System.CPU",
    "System.Memory",
    "System.Swap",
    "ReceiveRate",
    "SendRate",
    "numRegisteredTaskManagers",
    "numPendingTaskManagers",
    "startWorkFailurePerSecond",
    "numRunningJobs",
    "taskSlotsTotal",
    "taskSlotsAvailable",
    "STATEState",
    "STATETime",
    "STATETimeTotal",
    "uptime",
    "downtime",
    "numRestarts",
    "numRescales",
    "totalNumberOfCheckpoints",
    "numberOfInProgressCheckpoints",
    "numberOfCompletedCheckpoints",
    "numberOfFailedCheckpoints",
    "lastCompletedCheckpointId",
    "lastCheckpointDuration",
    "lastCheckpointSize",
    "lastCheckpointFullSize",
    "lastCheckpointMetadataSize",
    "lastCheckpointProcessedData",
    "lastCheckpointPersistedData",
    "lastCheckpointCompletedTimestamp",
    "lastCheckpointRestoreTimestamp",
    "lastCheckpointExternalPath",
    "numRecordsIn",
    "numRecordsOut",
    "numBytesIn",
    "numBytesOut",
    "numBuffersOut",
    "numBytesInLocal",
    "numBytesInRemote",
    "numBuffersInLocal",
    "numBuffersInRemote",
    "numFiredTimers",
    "currentInputWatermark",
    "idleTimeMsPerSecond",
    "backPressuredTimeMsPerSecond",
    "softBackPressuredTimeMsPerSecond",
    "hardBackPressuredTimeMsPerSecond",
    "busyTimeMsPerSecond",
    "maxSoftBackPressureTimeMs",
    "maxHardBackPressureTimeMs",
    "accumulateIdleTimeMs",
    "accumulateBackPressuredTimeMs",
    "accumulateBusyTimeMs",
    "changelogBusyTimeMsPerSecond",
    "isBackPressured",
    "mailboxMailsPerSecond",
    "mailboxLatencyMs",
    "mailboxQueueSize",
    "initializationTime",
    "checkpointAlignmentTime",
    "checkpointStartDelayNanos",
    "estimatedTimeToConsumeBuffersMs",
    "debloatedBufferSize",
    "inputQueueLength",
    "inputQueueSize",
    "inPoolUsage",
    "inputFloatingBuffersUsage",
    "inputExclusiveBuffersUsage",
    "outputQueueLength",
    "outputQueueSize",
    "outPoolUsage",
    "totalQueueLen",
    "minQueueLen",
    "maxQueueLen",
    "avgQueueLen",
    "currentInputNWatermark",
    "currentOutputWatermark",
    "numLateRecordsDropped",
    "numSplitsProcessed",
    "numRecordsInErrors",
    "sourceIdleTime",
    "currentEmitEventTimeLag",
    "currentFetchEventTimeLag",
    "watermarkLag",
    "pendingRecords",
    "watermarkAlignmentDrift",
    "currentWatermark",
    "activeTimeMsPerSecond",
    "pausedTimeMsPerSecond",
    "accumulatedActiveTimeMs",
    "unassignedSplits",
    "numRecordsSend",
    "numBytesSend",
    "numRecordsSendErrors",
    "numRecordsOutErrors",
    "currentSendTime",
    "totalCommittables",
    "successfulCommittables",
    "alreadyCommittedCommittables",
    "failedCommittables",
    "retriedCommittables",
    "pendingCommittables",
    "latency",
]
NOT_HERE = [
    "state.latency-track",
    "state.size-track",
    "rocksdb",
    "fileMerging",
    "changelog",
    "asyncStateProcessing",
    "forst",
    "lateRecordsDroppedRate",
    "watermarkLatency",
    "pendingBytes",
]


def _names(text):
    """What stands in code between backticks: names, and their parts."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {part for span in spans for part in (span, *re.split(r"[^\w-]+", span))}


def _is_told(name, text):
    return name in _names(text) or any(name in one.strip(".") for one in _names(text))


@pytest.mark.parametrize("name", HERE)
def test_a_metric_that_has_a_meaning_here_is_told(name):
    assert _is_told(name, MEASURED)


@pytest.mark.parametrize("name", NOT_HERE)
def test_one_that_has_none_is_told_with_the_reason(name):
    rows = [row for row in NOT_MEASURED.splitlines() if name in row and row.startswith("|")]
    (row,) = rows
    assert len(row.strip("|").split("|")[1].strip()) > 20


def test_the_states_of_a_job_that_are_measured_are_told():
    (row,) = [row for row in MEASURED.splitlines() if row.startswith("| `STATETime` |")]
    states = re.search(r"STATE is (.+?) \|", row)[1].removesuffix(".")
    assert set(re.split(r", | or ", states)) == {
        "initializing", "created", "running", "restarting", "cancelling", "failing",
        "deploying", "allSubTasksRunningOrFinished",
    }  # fmt: skip
