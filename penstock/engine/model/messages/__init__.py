"""Input of machines (events), their output (effects), and what crosses a control wire.

There is one union per machine. Time arrives as `now_ms` inside the events that need it:
milliseconds of the shell's monotonic clock. A class that crosses the wire is marked (wire);
`engine/hosting/network/wire/messages.py` decodes no other class. `fencing_token`: that of the
JobManager that sends the message; it is filled in on the wire. Does not know any machine.
"""

# ruff: file-ignore[undefined-local-with-import-star] - the classes of the modules are the names of this package
from penstock.engine.model.messages.checkpoints import *
from penstock.engine.model.messages.control import *
from penstock.engine.model.messages.job import *
from penstock.engine.model.messages.questions import *
from penstock.engine.model.messages.shared import *
from penstock.engine.model.messages.taskmanager import *
