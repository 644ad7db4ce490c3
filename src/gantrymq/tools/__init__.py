"""The tools that the command line and Spark share: verify, rebuild, salvage and export, and records as Arrow batches.

Each tool runs on one machine. Its parts (one log file, one queue, one index file) are functions that a Spark executor
can call. Nothing here prints.
"""
