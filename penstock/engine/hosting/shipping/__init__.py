"""Code to executors: pickled functions, the program's modules and files, Penstock itself."""
