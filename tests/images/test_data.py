"""The generated training data: reproducible, learnable, and divided among workers without remainder."""

from collections import Counter
from itertools import chain
from zlib import crc32

from tests.images.programs import RESNET, WIDE_AND_DEEP, load_module

click_data = load_module(WIDE_AND_DEEP, "data")
shape_data = load_module(RESNET, "data")
schedule = load_module(RESNET, "schedule")


def test_rows_are_reproducible() -> None:
    assert click_data.rows(50, "a") == click_data.rows(50, "a") != click_data.rows(50, "b")
    assert click_data.format_multislot(click_data.rows(1, "a")[0]) == (
        "5 -0.05152 0.36982 -1.16353 -0.84439 0.60435 1 35 1 74 1 145 1 150 1 1"
    )


def test_labels_are_balanced() -> None:
    clicks = sum(row.clicked for row in click_data.rows(4000, "to learn from"))
    assert 0.4 < clicks / 4000 < 0.6


def test_labels_follow_the_hidden_rule() -> None:
    for row in click_data.rows(500, "held out"):
        score = sum(row.measures) + sum(click_data.WEIGHTS[feature] for feature in row.features)
        assert row.clicked == (score > 0)


def test_features_are_disjoint_between_categories() -> None:
    features = [row.features for row in click_data.rows_covering_all_features()]
    assert sorted(chain(*features)) == list(range(click_data.CATEGORIES * click_data.VALUES))
    for row in click_data.rows(500, "to learn from"):
        assert [feature // click_data.VALUES for feature in row.features] == list(range(click_data.CATEGORIES))


def test_line_has_count_and_values_per_input() -> None:
    row = click_data.Row((0.5, -1.0), (3, 51), 1)
    assert click_data.format_multislot(row) == "2 0.50000 -1.00000 1 3 1 51 1 1"


def test_shards_cover_every_row_once() -> None:
    rows = click_data.rows(101, "to learn from")
    shards = [click_data.shard_of(rows, rank, 3) for rank in range(3)]
    assert Counter(chain(*shards)) == Counter(rows)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


def test_images_are_reproducible() -> None:
    assert shape_data.draw_images(20, "a") == shape_data.draw_images(20, "a") != shape_data.draw_images(20, "b")
    assert crc32(shape_data.draw_images(1, "a")[0][0]) == 554562974


def test_image_is_a_shape_in_darker_noise() -> None:
    for picture, label in zip(*shape_data.draw_images(200, "to learn from"), strict=True):
        bright = {
            divmod(offset, shape_data.SIZE)
            for offset, value in enumerate(picture)
            if value >= shape_data.FOREGROUND_BRIGHTNESS
        }
        shape = {
            (y, x) for y, line in enumerate(shape_data.SHAPES[label]) for x, sign in enumerate(line) if sign == "#"
        }
        assert len(picture) == shape_data.SIZE**2
        assert move_to_origin(bright) == move_to_origin(shape)


def move_to_origin(pixels: set[tuple[int, int]]) -> set[tuple[int, int]]:
    top, left = min(y for y, _ in pixels), min(x for _, x in pixels)
    return {(y - top, x - left) for y, x in pixels}


def test_all_shapes_are_distinct_and_used() -> None:
    assert len(set(shape_data.SHAPES)) == len(shape_data.SHAPES) == 8
    assert set(shape_data.draw_images(200, "held out")[1]) == set(range(8))


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
        shards = [schedule.shard_of(batch, rank, workers) for rank in range(workers)]
        assert sorted(chain(*shards)) == sorted(batch)


def test_learning_rate_warms_up_and_decays() -> None:
    factors = [schedule.learning_rate_factor(step, 128) for step in range(128)]
    assert factors[0] < 0.1
    assert factors[15:65] == [1.0] * 50
    assert 0 < factors[-1] < 0.1
    assert factors == sorted(factors[:20]) + sorted(factors[20:], reverse=True)
