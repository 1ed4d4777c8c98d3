"""The master of a BATCH job: which stages run next, and with how many subtasks."""
