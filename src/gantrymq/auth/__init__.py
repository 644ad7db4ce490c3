"""RocketMQ 5's users and policies ("ACL 2.0"): who they are, what a policy decides, and the files that keep them.

``users`` and ``policies`` are values, ``decision`` answers who may do what, ``directory`` holds all users with their
policies and the rules of a change, ``files`` reads and writes them. Only ``files`` has I/O.
"""
