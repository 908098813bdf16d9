"""A wide-and-deep network: a linear (wide) and a deep part give one probability."""

from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F

from data import CATEGORIES, MEASURES, VALUES, Row

EMBEDDING = 8
HIDDEN = (32, 16)


@dataclass(frozen=True)
class Model:
    """Variables of the static graph, as Paddle's executors want them."""

    inputs: list[paddle.static.Variable]  # in the order of data.slots
    embedded: list[paddle.static.Variable]  # the vectors of a row's features
    clicks: paddle.static.Variable  # the probability of a click
    loss: paddle.static.Variable


def wide_and_deep() -> Model:
    measures = paddle.static.data("measures", [None, MEASURES], "float32")
    features = [paddle.static.data(f"feature_{column}", [None, 1], "int64") for column in range(CATEGORIES)]
    clicked = paddle.static.data("clicked", [None, 1], "int64")
    embedded = [embedding(feature) for feature in features]
    deep = paddle.concat([*embedded, measures], axis=1)
    for width in HIDDEN:
        deep = paddle.static.nn.fc(deep, width, activation="relu")
    wide = paddle.static.nn.fc(measures, 1)
    clicks = F.sigmoid(wide + paddle.static.nn.fc(deep, 1))
    loss = paddle.mean(F.binary_cross_entropy(clicks, paddle.cast(clicked, "float32")))
    return Model([measures, *features, clicked], embedded, clicks, loss)


def embedding(feature: paddle.static.Variable) -> paddle.static.Variable:
    """A vector for each feature; all columns share one table, which lives on the parameter servers only."""
    vectors = paddle.static.nn.sparse_embedding(
        input=feature,
        size=[CATEGORIES * VALUES, EMBEDDING],
        param_attr=paddle.ParamAttr(name="embedding", initializer=paddle.nn.initializer.Uniform(-0.1, 0.1)),
    )
    return paddle.reshape(vectors, [-1, EMBEDDING])


def feed(rows: list[Row]) -> dict[str, np.ndarray]:
    """Rows as an executor's feed for the inputs above."""
    columns = [[row.features[column] for row in rows] for column in range(CATEGORIES)]
    return {
        "measures": np.array([row.measures for row in rows], "float32"),
        **{f"feature_{number}": np.array(column, "int64").reshape(-1, 1) for number, column in enumerate(columns)},
        "clicked": np.array([row.clicked for row in rows], "int64").reshape(-1, 1),
    }
