"""Notebooks without a front end: cells that a real Jupyter kernel runs, and what each of them shows."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

PATIENCE_S = 120


@dataclass(slots=True)
class Shown:
    """The output of a cell. `error`: the lines of the error that ended it. `status`: of the whole cell, as tools that run notebooks
    see it. `pictures`: what was displayed, by MIME type, by the place of the display in which it came and came again.
    """

    stdout: str = ""
    stderr: str = ""
    error: list[str] = field(default_factory=list)
    status: str = ""
    pictures: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def add(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "stream" and content["name"] == "stdout":
            self.stdout += content["text"]
        elif kind == "stream":
            self.stderr += content["text"]
        elif kind == "display_data":
            self.pictures.setdefault(_place(content), []).append(content["data"])
        elif kind == "update_display_data":  # It may be of an earlier cell.
            self.pictures.get(_place(content), []).append(content["data"])
        elif kind == "error":
            self.error += "\n".join(content["traceback"]).split("\n")


def _place(content: dict[str, Any]) -> str:
    return content.get("transient", {}).get("display_id", "")


class Notebook:
    """A kernel with the Python of the tests."""

    def __init__(self) -> None:
        self._manager = KernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
        self._manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)

    def run(
        self,
        code: str,
        cell: str | None = None,
        interrupt_if: Callable[[Shown], bool] = lambda _shown: False,
    ) -> Shown:
        """Run a cell to its end. `cell`: the front end's name for it; None: it gives none.

        `interrupt_if`: interrupts the kernel once, as soon as this is true of what the cell has shown.
        """
        session = self._client.session
        content = {
            "code": code,
            "store_history": True,
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = session.msg("execute_request", content)
        request["metadata"] |= {} if cell is None else {"cellId": cell}
        self._client.shell_channel.send(request)
        shown, is_interrupted = Shown(), False
        for message in self._answers(self._client.get_iopub_msg, request):
            kind = message["msg_type"]
            if kind == "status" and message["content"]["execution_state"] == "idle":
                break
            shown.add(kind, message["content"])
            if not is_interrupted and interrupt_if(shown):
                is_interrupted = True
                self._manager.interrupt_kernel()
        reply = next(self._answers(self._client.get_shell_msg, request))
        shown.status = reply["content"]["status"]
        return shown

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()

    @staticmethod
    def _answers(get: Callable[..., dict[str, Any]], request: dict[str, Any]) -> Any:
        """The messages that answer this request."""
        while True:
            message = get(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                yield message
