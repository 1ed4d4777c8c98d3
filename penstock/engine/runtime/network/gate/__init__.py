"""Input side of a task: gates, channels, credit. `single` is where to start reading.

| module | what it is |
|---|---|
| `single`, `union` | fair reading of the channels of one gate, and of several gates |
| `channel`, `local_channel`, `remote_channel` | where elements come from |
| `credit` | the receiver's half of a remote channel's flow control |
| `backoff`, `producer_check` | what to do when a partition is missing |
| `debloater` | how large buffers should be |
| `network_input` | a logical input: a gate with its watermarks combined |
| `ports` | what the host gives to gates and channels |
"""
