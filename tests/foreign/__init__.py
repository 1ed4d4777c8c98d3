"""Flink's own programs, unchanged, against jobs of Penstock on Spark. `make foreign` installs them and runs these tests."""
