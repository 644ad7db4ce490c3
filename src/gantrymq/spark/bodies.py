"""The column body stand in :mod:`gantrymq.tools.bodies`; the name here is for those who knew it."""

from gantrymq.tools.bodies import body_column

__all__ = ["body_column"]
