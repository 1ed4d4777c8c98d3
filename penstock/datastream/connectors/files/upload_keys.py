"""Keys of a FileSink's objects in S3, which tell whose uploads they are.

Servers list uploads by their keys and nothing else. So the UUID in the name of a part holds, as hexadecimal digits, what the hidden
names of files say in letters: the sink (12), the subtask (4), the attempt (3), the checkpoint that its writer had prepared for last
when it began the file (7), and the writer (6). An upload of an older attempt that was begun behind checkpoint 7 belongs to checkpoint
8 or a later one, so that nobody will commit it if the job goes on from checkpoint 7.
In a BATCH job all attempts of a subtask give the same names, of which one is committed. Their attempt is `fff`.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import Final

from penstock.runtime.sink import WriterContext

_MOST_SUBTASKS: Final = 0xFFFF
_OF_BATCH: Final = 0xFFF
_MOST_CHECKPOINTS: Final = 0xFFFFFFF
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class UploadKey:
    """`sink`: of a job and the uid of its operator. `behind`: a checkpoint."""

    sink: str
    subtask: int
    attempt: int
    behind: int
    writer: str

    @staticmethod
    def of(context: WriterContext, behind: int) -> UploadKey:
        """The key of files that this writer begins behind a checkpoint."""
        sink = sink_of(context.job_prefix, context.operator_id)
        subtask = min(context.subtask, _MOST_SUBTASKS)
        if context.may_have_rivals:
            return UploadKey(sink, subtask, _OF_BATCH, 0, "0" * 6)
        # Uploads with a number that is cut are never taken for leftovers.
        attempt = min(context.attempt, _OF_BATCH - 1)
        return UploadKey(
            sink, subtask, attempt, min(behind, _MOST_CHECKPOINTS), uuid.uuid4().hex[:6]
        )

    @staticmethod
    def in_name(name: str) -> UploadKey | None:
        """The key in the name of an object; None: there is none."""
        found = _UUID.findall(name)
        if not found:
            return None
        digits = found[-1].replace("-", "")
        return UploadKey(
            digits[:12],
            int(digits[12:16], 16),
            int(digits[16:19], 16),
            int(digits[19:26], 16),
            digits[26:],
        )

    def __str__(self) -> str:
        digits = f"{self.sink}{self.subtask:04x}{self.attempt:03x}{self.behind:07x}{self.writer}"
        return str(uuid.UUID(hex=digits))

    def is_left(self, context: WriterContext) -> bool:
        """Whether the subtask, or one whose work it continues, began it in an older attempt, and nobody will commit it."""
        restored = context.restored_checkpoint_id or 0
        return (
            self.sink == sink_of(context.job_prefix, context.operator_id)
            and self.attempt < min(context.attempt, _OF_BATCH - 1)
            and restored <= self.behind < _MOST_CHECKPOINTS
            and self.subtask % context.parallelism == context.subtask
        )

    def is_of_batch_job(self, job_prefix: str, operator_id: str) -> bool:
        return self.attempt == _OF_BATCH and self.sink == sink_of(job_prefix, operator_id)


def sink_of(job_prefix: str, operator_id: str) -> str:
    """Twelve hexadecimal digits."""
    return hashlib.sha256(f"{job_prefix}/{operator_id}".encode()).hexdigest()[:12]
