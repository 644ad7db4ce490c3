"""Races: the same work by the real RocketMQ and by gantrymq, in turn, in one run, on one machine.

A :class:`race.Race` is one piece of work with a side for each program; every side runs in its own process. The result
is the ratio of medians, because an absolute time says more about the machine than about the program.
"""
