"""A file system as pyarrow shows HDFS while its NameNode is away: nothing is there, and nothing is an error."""

from pyarrow import fs


class SystemThatIsAway(fs.FileSystemHandler):
    def get_type_name(self):
        return "away"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return [fs.FileInfo(path, fs.FileType.NotFound) for path in paths]

    def get_file_info_selector(self, selector):
        return []

    def _missing(self, path, *_):
        raise FileNotFoundError(path)

    open_input_stream = open_input_file = delete_file = delete_dir = _missing
    move = copy_file = open_output_stream = open_append_stream = create_dir = _missing
    delete_dir_contents = delete_root_dir_contents = _missing
