"""The parts of a job that runs in this process. Its client hides them."""


def control_of(client):
    """What the client of a job, or of its rows, asks."""
    return client._control


def manager_of(client):
    """The JobManager of the job."""
    return client._control.manager
