"""What is found once of an immutable object, and kept with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 (stands where a decorator does)
    """`functools.cached_property` without the lock of Python 3.11, which takes longer than what is found here."""

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, thing: None, owner: type) -> once[T]: ...

    @overload
    def __get__(self, thing: object, owner: type) -> T: ...

    def __get__(self, thing: Any, owner: type) -> once[T] | T:
        if thing is None:
            return self
        found = vars(thing)[self._name] = self._find(thing)
        return found
