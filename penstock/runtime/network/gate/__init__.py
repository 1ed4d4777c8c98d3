"""Input side of a task: gates, channels, credit. `single` is where to start reading.

| module | what it is |
|---|---|
| `single`, `union` | fair reading of the channels of one gate, of several gates |
| `channel`, `local_channel`, `remote_channel` | where elements come from |
| `credit` | receiver's half of the flow control of a remote channel |
| `backoff`, `producer_check` | what to do when a partition is not there |
| `debloater` | how large buffers should be |
| `network_input` | a logical input: a gate with its watermarks combined |
| `ports` | what all this is given by its host |
"""
