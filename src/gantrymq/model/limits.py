"""Limits that settings, servers, clients and files share."""

MAX_QUEUES = 1 << 16  # of a topic; a server or a file with a larger number is wrong, and each queue costs memory
