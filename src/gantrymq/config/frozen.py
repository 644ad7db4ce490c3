"""The decorator of the settings classes: as ``dataclass(frozen=True)``, and forty times as fast to import.

A dataclass compiles the text of six methods, and each names every field. With the 240 keys of a store, a broker and
gRPC that was a tenth of the start of a command. The methods here read the names of the fields instead. A settings
object is made a few times in the life of a process, so its methods need not be fast.

Arguments of a constructor are keywords, and every field has a default.
"""

from typing import TYPE_CHECKING

__all__ = ["settings"]

if TYPE_CHECKING:
    from dataclasses import dataclass as settings  # to type checkers it is one
else:
    from dataclasses import FrozenInstanceError, dataclass, fields

    def settings(*, frozen):
        """Make the decorated class a frozen dataclass. ``frozen`` is for type checkers, and always true."""
        assert frozen
        return _frozen

    def _frozen(kind):
        kind = dataclass(init=False, repr=False, eq=False)(kind)
        defaults = {spec.name: spec.default for spec in fields(kind)}
        shown = [spec.name for spec in fields(kind) if spec.repr]

        def init(self, **values):
            if unknown := values.keys() - defaults.keys():
                raise TypeError(f"{kind.__name__} has no field {min(unknown)!r}")
            vars(self).update(defaults | values)
            if hasattr(self, "__post_init__"):
                self.__post_init__()

        def items(self):
            return tuple(getattr(self, name) for name in defaults)

        def equal(self, other):
            return items(self) == items(other) if type(other) is type(self) else NotImplemented

        def represent(self):
            return f"{kind.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

        kind.__init__, kind.__eq__, kind.__repr__ = init, equal, represent
        kind.__hash__ = lambda self: hash(items(self))
        kind.__setattr__, kind.__delattr__ = _refuse, _refuse
        return kind

    def _refuse(self, name, *value):
        raise FrozenInstanceError(f"cannot change field {name!r}")
