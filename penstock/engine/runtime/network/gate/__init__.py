"""Input side of a task: gates, channels, credit. `single` is where to start reading.

| module | what it is |
|---|---|
| `single` | fair reading of the channels of one gate |
| `channel`, `remote_channel` | where elements come from, and the receiver's half of flow control |
| `missing_partition` | what to do when a partition is missing |
| `debloater` | how large buffers should be, and how many records may wait |
| `network_input` | a logical input: a gate, or several read as one, with its watermarks combined |
| `ports` | what the host gives to gates and channels |
"""
