"""Codecs of RocketMQ's files, one item at a time: the reference that the kernels are compared with.

Every file opens with the table of the bytes it reads and writes. Everything is big-endian. Nothing here touches a
file: the functions take and return bytes.
"""
