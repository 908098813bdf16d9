"""The pictures that the model learns to tell apart: drawn from a seed, so that nothing has to be downloaded."""

from random import Random

SIZE = 16  # pixels in each direction, one byte each
BRIGHTER = 128  # than the noise around it

DRAWN = """
........  ...##...  ##......  ......##  ...##...  ##....##  ########  ..####..
........  ...##...  ###.....  .....###  ...##...  ###..###  ########  .######.
........  ...##...  .###....  ....###.  ...##...  .######.  ##....##  ###..###
########  ...##...  ..###...  ...###..  ########  ..####..  ##....##  ##....##
########  ...##...  ...###..  ..###...  ########  ..####..  ##....##  ##....##
........  ...##...  ....###.  .###....  ...##...  .######.  ##....##  ###..###
........  ...##...  .....###  ###.....  ...##...  ###..###  ########  .######.
........  ...##...  ......##  ##......  ...##...  ##....##  ########  ..####..
"""
SHAPES = list(zip(*(line.split() for line in DRAWN.strip().splitlines()), strict=True))
"""Each shape's lines; its place in this list is its label."""
HEIGHT = len(SHAPES[0])


def pictures(count: int, seed: str) -> tuple[list[bytes], list[int]]:
    """Each a shape somewhere in noise, and its label; the same for the same seed, on every machine and Python."""
    source = Random(seed)
    labels = [source.randrange(len(SHAPES)) for _ in range(count)]
    return [_picture(source, label) for label in labels], labels


def _picture(source: Random, label: int) -> bytes:
    pixels = bytearray(source.randbytes(SIZE * SIZE).translate(_DARK))
    left, top = source.randrange(SIZE - HEIGHT + 1), source.randrange(SIZE - HEIGHT + 1)
    for place in _PLACES[label]:
        pixels[top * SIZE + left + place] += BRIGHTER
    return bytes(pixels)


_DARK = bytes(value * (255 - BRIGHTER) // 255 for value in range(256))
_PLACES = [
    [y * SIZE + x for y, line in enumerate(shape) for x, sign in enumerate(line) if sign == "#"] for shape in SHAPES
]
