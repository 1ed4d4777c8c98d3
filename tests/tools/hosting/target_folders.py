"""Folders as `pip install --target` leaves them: packages, with what describes their distributions beside them."""

from importlib.machinery import EXTENSION_SUFFIXES

COMPILED = f"_core{EXTENSION_SUFFIXES[0]}"


def write(folder, files):
    """`files`: path -> text."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def install(folder, name, version, files):
    """Write the files of a distribution, and their names into its RECORD."""
    info = f"{name}-{version}.dist-info"
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/METADATA", f"{info}/RECORD"])
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    write(folder, files | {f"{info}/METADATA": metadata, f"{info}/RECORD": record})
