"""What the command line and Spark share: verify, rebuild, salvage and export of a store, and records as Arrow batches.

The engines work on one machine; their parts (one log file, one queue, one index file) are functions that a Spark
executor can call. Nothing here prints.
"""
