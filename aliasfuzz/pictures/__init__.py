"""Memory maps: pictures of a program's storages, step by step, that show where a compiler went wrong."""

from aliasfuzz.pictures.drawing import draw
from aliasfuzz.pictures.model import Picture
from aliasfuzz.pictures.svg import svg
from aliasfuzz.pictures.terminal import Terminal

__all__ = ["Picture", "Terminal", "draw", "svg"]
