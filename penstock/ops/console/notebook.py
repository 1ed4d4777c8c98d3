"""How a notebook shows a job: drawn when somebody looks, and again while the job runs, in the same place.

Knows IPython only where a notebook calls it, and needs nothing of it elsewhere. Source: IPython's rich display protocol.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Final, Protocol, runtime_checkable

from penstock.engine.model.program import JobControl
from penstock.ops.console.job_picture import JobPicture, picture_of
from penstock.ops.console.progress import Rates
from penstock.ops.registry.job_registry import JOB_REGISTRY, Look

_WINDOW_S: Final = 5.0
_PAUSE_S: Final = 1.0


@runtime_checkable
class Watched(Protocol):
    """A job that is recorded. `look`: returns what is known of it now; None: nobody records it."""

    @property
    def look(self) -> Look | None: ...


class JobDisplay:
    """One job. Any thread."""

    def __init__(self, control: JobControl) -> None:
        self._control = control
        self._rates = Rates(_WINDOW_S)
        self._lock = threading.Lock()
        self._place: Final = {"display_id": f"penstock-{control.job_id}"}
        self._publish: Any = None
        self._is_over = threading.Event()

    def picture(self) -> JobPicture | None:
        """Return the job as it is now; None: nobody records it."""
        look = self._control.look if isinstance(self._control, Watched) else None
        if look is None:
            return None
        with self._lock:
            job = look()
            return picture_of(job, JOB_REGISTRY.verdict(job).sentences, self._rates)

    def show(self) -> None:
        """Show the job below the cell that runs. In a notebook it is drawn again every second until the job has ended."""
        from IPython import get_ipython
        from IPython.display import publish_display_data

        publish: Any = publish_display_data
        bundle = self.bundle()
        shell: Any = get_ipython()
        if getattr(shell, "kernel", None) is None:  # A terminal cannot draw in the same place.
            publish(bundle)
            return
        publish(bundle, transient=self._place)
        with self._lock:
            is_first, self._publish = self._publish is None, publish
        if is_first and not self._is_over.is_set():
            threading.Thread(target=self._go_on, name="penstock-notebook", daemon=True).start()

    def refresh(self) -> None:
        """Draw the job again, if it is shown. A fault of the notebook changes nothing for the program."""
        publish = self._publish
        if publish is not None:
            with contextlib.suppress(Exception):
                publish(self.bundle(), transient=self._place, update=True)

    def bundle(self) -> dict[str, str]:
        """Return the job by MIME type."""
        picture = self.picture()
        if picture is None or picture.snapshot.status.is_terminal:
            self._is_over.set()
        if picture is None:
            return {"text/plain": f"job {self._control.job_id}: {self._control.status()}"}
        return {"text/plain": picture.text(), "text/html": picture.html()}

    def _go_on(self) -> None:
        """Until the end of the job has been drawn, by this thread or another."""
        while not self._is_over.wait(_PAUSE_S):
            self.refresh()
