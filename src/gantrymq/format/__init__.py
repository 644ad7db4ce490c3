"""Codecs of RocketMQ's files, one item at a time: the reference for the kernels.

Each module begins with the table of the bytes that it reads and writes. All numbers are big-endian. The functions take
and return bytes; they do no I/O.
"""
