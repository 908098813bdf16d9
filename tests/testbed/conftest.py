"""What the tests of the test bed share."""

from tests.support.volcano import pytest_collection_finish, volcano, volcano_build

__all__ = ["pytest_collection_finish", "volcano", "volcano_build"]
