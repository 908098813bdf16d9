"""What all our kinds have in common: the base of their Structs, and conditions."""

from datetime import datetime

import msgspec


class Fields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of everything that stands in an object of our kinds. The text below a field is its description."""


class Condition(Fields, frozen=True, omit_defaults=False):
    """One thing that is true or not true of the job, and why."""

    type: str
    """What is told."""
    status: str
    """True, False or Unknown."""
    reason: str
    """Why, as one word."""
    message: str
    """Why, as a sentence."""
    observed_generation: int
    """The generation of the job that this was told about."""
    last_transition_time: datetime
    """Since when the status is what it is."""
