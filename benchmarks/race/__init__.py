"""The race track: the same work by the real RocketMQ and by gantrymq, in turn, in one run, on one machine.

A :class:`race.Race` is one piece of work with a side for each; every side runs in a process of its own. What counts is
the ratio of medians: an absolute time says more about the machine than about the program.
"""
