"""Every kind of ours. CRDs, reference and local API server are derived from this list; controllers/kinds.py runs it."""

from typing import Any

from paddle_operator.api.definition import KindDefinition
from paddle_operator.api.paddlejob import PADDLE_JOB

KINDS: tuple[KindDefinition[Any, Any], ...] = (PADDLE_JOB,)
