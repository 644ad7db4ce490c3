"""A forwarded method is the method of the part that an object owns."""

from gantrymq.store.forwarding import forward


class Engine:
    def __init__(self, name: str) -> None:
        self.name = name

    def start(self, times: int = 1) -> str:
        """Start it."""
        return self.name * times


class Car:
    start = forward("_engine", Engine.start)

    def __init__(self, name: str) -> None:
        self._engine = Engine(name)


def test_forwarded_method_is_that_of_each_objects_own_part() -> None:
    one, two = Car("a"), Car("b")
    assert (one.start(), two.start(times=2)) == ("a", "bb")
    assert vars(one)["start"] == one._engine.start  # no further call between them


def test_forwarded_method_of_class_takes_object() -> None:
    assert Car.start(Car("a"), 2) == "aa"


def test_forwarded_method_has_docstring_of_part() -> None:
    assert Car.start.__doc__ == "Start it."
