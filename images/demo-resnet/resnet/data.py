"""Synthetic images to classify, generated from a seed, so that nothing has to be downloaded."""

from random import Random

SIZE = 16  # pixels in each direction, one byte each
FOREGROUND_BRIGHTNESS = 128  # than the noise around it

SHAPES_TEXT = """
........  ...##...  ##......  ......##  ...##...  ##....##  ########  ..####..
........  ...##...  ###.....  .....###  ...##...  ###..###  ########  .######.
........  ...##...  .###....  ....###.  ...##...  .######.  ##....##  ###..###
########  ...##...  ..###...  ...###..  ########  ..####..  ##....##  ##....##
########  ...##...  ...###..  ..###...  ########  ..####..  ##....##  ##....##
........  ...##...  ....###.  .###....  ...##...  .######.  ##....##  ###..###
........  ...##...  .....###  ###.....  ...##...  ###..###  ########  .######.
........  ...##...  ......##  ##......  ...##...  ##....##  ########  ..####..
"""
SHAPES = list(zip(*(line.split() for line in SHAPES_TEXT.strip().splitlines()), strict=True))
"""The lines of each shape; the index is its label."""
HEIGHT = len(SHAPES[0])


def draw_images(count: int, seed: str) -> tuple[list[bytes], list[int]]:
    """Images of a shape in noise, and their labels; reproducible for a seed on every machine and Python."""
    source = Random(seed)
    labels = [source.randrange(len(SHAPES)) for _ in range(count)]
    return [_draw(source, label) for label in labels], labels


def _draw(source: Random, label: int) -> bytes:
    pixels = bytearray(source.randbytes(SIZE * SIZE).translate(_NOISE_TABLE))
    left, top = source.randrange(SIZE - HEIGHT + 1), source.randrange(SIZE - HEIGHT + 1)
    for offset in _SHAPE_OFFSETS[label]:
        pixels[top * SIZE + left + offset] += FOREGROUND_BRIGHTNESS
    return bytes(pixels)


_NOISE_TABLE = bytes(value * (255 - FOREGROUND_BRIGHTNESS) // 255 for value in range(256))
_SHAPE_OFFSETS = [
    [y * SIZE + x for y, line in enumerate(shape) for x, sign in enumerate(line) if sign == "#"] for shape in SHAPES
]
