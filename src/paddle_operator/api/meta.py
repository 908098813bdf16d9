"""What all our kinds have in common: the base of their Structs, and conditions."""

from datetime import datetime

import msgspec


class Fields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of every Struct in an object of our kinds. The text below a field is its description."""


class Condition(Fields, frozen=True, omit_defaults=False):
    """One thing that is true or not true of the job, and why."""

    type: str
    """The type of the condition."""
    status: str
    """True, False or Unknown."""
    reason: str
    """The reason for the status, in CamelCase."""
    message: str
    """The reason for the status, for people."""
    observed_generation: int
    """The generation of the job that the condition is about."""
    last_transition_time: datetime
    """When the status changed last."""
