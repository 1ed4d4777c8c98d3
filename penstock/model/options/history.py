"""Options of archives of jobs that have ended, and of the history server that shows them.

Does not know their readers. Source: Flink JobManagerOptions (archive.fs.dir), HistoryServerOptions.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, text, whole


class ArchiveOptions(OptionGroup, title="Archives of jobs"):
    """Where a job is archived when it has ended."""

    DIR: Final = text(
        "jobmanager.archive.fs.dir",
        None,
        (
            "Folder, or URI of one, for an archive of each job that has ended. `penstock history` "
            "and Flink's history server read it. Not set: jobs are not archived."
        ),
    )


class HistoryServerOptions(OptionGroup, title="History server"):
    """What `penstock history` shows, and where. Set them with its `-D`."""

    DIRS: Final = text(
        "historyserver.archive.fs.dir",
        None,
        "Folders of archives, with commas between them, if the command names none.",
    )
    REFRESH: Final = duration(
        "historyserver.archive.fs.refresh-interval",
        "10 s",
        "How often the folders are looked at for archives.",
    )
    RETAINED_JOBS: Final = whole(
        "historyserver.archive.retained-jobs",
        "-1",
        (
            "How many jobs are kept in each folder. The archives of older ones are removed from "
            "the folder. Jobs that Flink archived by application are not counted. -1: all are kept."
        ),
    )
    ADDRESS: Final = text(
        "historyserver.web.address", "localhost", "The address to listen at; a loopback address."
    )
    PORT: Final = whole("historyserver.web.port", "8082", "The port. 0: any free one.")
    WEB_REFRESH: Final = duration(
        "historyserver.web.refresh-interval", "10 s", "How often the dashboard asks for news."
    )
