"""Events are stored once and served in two forms: core v1's, which is the stored one, and that of events.k8s.io/v1."""

from paddle_operator.local.apiserver.scheme.kind import Manifest

# What the newer form calls otherwise; everything else has one name in both.
_NEW_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_OLD_NAMES = {new: old for old, new in _NEW_NAMES.items()}

# What each form shows even where there is nothing to show.
_CORE_BLANKS: Manifest = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_NEW_BLANKS: Manifest = {
    "eventTime": None,
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
_LEFT_OUT_WHERE_EMPTY = ("reportingController", "reportingInstance", "note", "reason", "type", "action")


def as_core(event: Manifest) -> Manifest:
    """An Event of events.k8s.io/v1 in the form in which it is stored."""
    renamed = {_OLD_NAMES.get(name, name): value for name, value in event.items()}
    return {"apiVersion": "v1", "kind": "Event"} | _CORE_BLANKS | renamed | {"apiVersion": "v1"}


def as_new(event: Manifest) -> Manifest:
    """A stored Event in the form of events.k8s.io/v1."""
    renamed = {_NEW_NAMES.get(name, name): value for name, value in event.items()}
    shown = {name: value for name, value in renamed.items() if value or name not in _LEFT_OUT_WHERE_EMPTY}
    return _NEW_BLANKS | shown | {"apiVersion": "events.k8s.io/v1"}
