"""A small residual network for small greyscale images."""

import paddle
from paddle import nn

WIDTHS = (8, 16, 32)


class Block(nn.Layer):
    """Two convolutions and a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(before, after, 3, stride, padding=1, bias_attr=False),
            norm(after),
            nn.ReLU(),
            nn.Conv2D(after, after, 3, padding=1, bias_attr=False),
            norm(after),
        )
        self.around = (
            nn.Conv2D(before, after, 1, stride, bias_attr=False) if (before, stride) != (after, 1) else nn.Identity()
        )
        self.report_result = nn.ReLU()

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        return self.report_result(self.body(images) + self.around(images))


def norm(channels: int) -> nn.Layer:
    """GroupNorm, not BatchNorm, whose statistics of a worker's shard would make results depend on the world size."""
    return nn.GroupNorm(channels // 4, channels)


def resnet(classes: int) -> nn.Layer:
    narrow, middle, wide = WIDTHS
    return nn.Sequential(
        nn.Conv2D(1, narrow, 3, padding=1, bias_attr=False),
        norm(narrow),
        nn.ReLU(),
        Block(narrow, narrow, 1),
        Block(narrow, middle, 2),
        Block(middle, wide, 2),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Linear(wide, classes, weight_attr=nn.initializer.Constant(0.0)),  # all shapes are equally likely at first
    )
