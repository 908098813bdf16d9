"""What the examples learn from: the same everywhere, learnable, and shared out without a rest."""

from collections import Counter
from itertools import chain
from zlib import crc32

from tests.images.programs import RESNET, WIDE_AND_DEEP, loaded

rows_of = loaded(WIDE_AND_DEEP, "data")
shapes = loaded(RESNET, "data")
schedule = loaded(RESNET, "schedule")


def test_rows_are_reproducible() -> None:
    assert rows_of.rows(50, "a") == rows_of.rows(50, "a") != rows_of.rows(50, "b")
    assert rows_of.format_multislot(rows_of.rows(1, "a")[0]) == (
        "5 -0.05152 0.36982 -1.16353 -0.84439 0.60435 1 35 1 74 1 145 1 150 1 1"
    )


def test_labels_are_balanced() -> None:
    clicked = sum(row.clicked for row in rows_of.rows(4000, "to learn from"))
    assert 0.4 < clicked / 4000 < 0.6


def test_labels_follow_the_hidden_rule() -> None:
    for row in rows_of.rows(500, "held out"):
        score = sum(row.measures) + sum(rows_of.WEIGHTS[feature] for feature in row.features)
        assert row.clicked == (score > 0)


def test_features_are_disjoint_between_categories() -> None:
    every = [row.features for row in rows_of.rows_covering_all_features()]
    assert sorted(chain(*every)) == list(range(rows_of.CATEGORIES * rows_of.VALUES))
    for row in rows_of.rows(500, "to learn from"):
        assert [feature // rows_of.VALUES for feature in row.features] == list(range(rows_of.CATEGORIES))


def test_line_has_count_and_values_per_input() -> None:
    row = rows_of.Row((0.5, -1.0), (3, 51), 1)
    assert rows_of.format_multislot(row) == "2 0.50000 -1.00000 1 3 1 51 1 1"


def test_shards_cover_every_row_once() -> None:
    everything = rows_of.rows(101, "to learn from")
    shares = [rows_of.shard_of(everything, rank, 3) for rank in range(3)]
    assert Counter(chain(*shares)) == Counter(everything)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_images_are_reproducible() -> None:
    assert shapes.draw_images(20, "a") == shapes.draw_images(20, "a") != shapes.draw_images(20, "b")
    assert crc32(shapes.draw_images(1, "a")[0][0]) == 554562974


def test_image_is_a_shape_in_darker_noise() -> None:
    for picture, label in zip(*shapes.draw_images(200, "to learn from"), strict=True):
        bright = {
            (at // shapes.SIZE, at % shapes.SIZE)
            for at, value in enumerate(picture)
            if value >= shapes.FOREGROUND_BRIGHTNESS
        }
        images = {(y, x) for y, line in enumerate(shapes.SHAPES[label]) for x, sign in enumerate(line) if sign == "#"}
        assert len(picture) == shapes.SIZE**2
        assert from_the_corner(bright) == from_the_corner(images)


def from_the_corner(places: set[tuple[int, int]]) -> set[tuple[int, int]]:
    top, left = min(y for y, _ in places), min(x for _, x in places)
    return {(y - top, x - left) for y, x in places}


def test_all_shapes_are_distinct_and_used() -> None:
    assert len(set(shapes.SHAPES)) == len(shapes.SHAPES) == 8
    assert set(shapes.draw_images(200, "held out")[1]) == set(range(8))


def test_epoch_is_a_permutation() -> None:
    first, second = schedule.batches(64, 16, 0), schedule.batches(64, 16, 1)
    assert first == schedule.batches(64, 16, 0) != second
    assert [len(batch) for batch in first] == [16] * 4
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(64))


def test_incomplete_batch_is_dropped() -> None:
    assert [len(batch) for batch in schedule.batches(70, 16, 0)] == [16] * 4


def test_global_batch_is_independent_of_world_size() -> None:
    batch = schedule.batches(64, 16, 0)[0]
    for workers in (1, 2, 3, 5):
        shares = [schedule.shard_of(batch, rank, workers) for rank in range(workers)]
        assert sorted(chain(*shares)) == sorted(batch)


def test_learning_rate_warms_up_and_decays() -> None:
    paces = [schedule.learning_rate_factor(step, 128) for step in range(128)]
    assert paces[0] < 0.1
    assert paces[15:65] == [1.0] * 50
    assert 0 < paces[-1] < 0.1
    assert paces == sorted(paces[:20]) + sorted(paces[20:], reverse=True)
