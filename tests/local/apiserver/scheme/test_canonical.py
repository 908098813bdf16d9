import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddle_operator.kube.quantities import amount
from paddle_operator.local.apiserver.scheme import canonical

quick = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

NUMBERS = st.decimals(min_value=0, max_value=10**12, places=3, allow_nan=False, allow_infinity=False)
SUFFIXES = st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"])


@quick
@given(NUMBERS, SUFFIXES)
def test_canonical_quantity_is_equal_and_stable(number: object, suffix: str) -> None:
    written = f"{number}{suffix}"
    form = canonical.quantity(written)
    assert canonical.quantity(form) == form
    assert amount(form) == amount(written)


@pytest.mark.parametrize("written", ["", "much", "1 Gi", "1gi", "--1", "1e", "0x1", "1,5", "∞", "NaN", "1_000"])
def test_invalid_quantity_raises_value_error(written: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        canonical.quantity(written)


def test_resource_is_rounded_up_to_thousandths() -> None:
    assert canonical.resource("0.0001") == "1m"
    assert canonical.quantity("0.0001") == "100u"


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.999999999Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z"),
    ],
)
def test_time_is_in_utc_and_seconds(written: str, form: str) -> None:
    assert canonical.time(written) == form


@pytest.mark.parametrize("written", ["yesterday", "2026-01-02", "2026-01-02 03:04:05Z", "2026-13-02T03:04:05Z", ""])
def test_invalid_time_raises_value_error(written: str) -> None:
    with pytest.raises(ValueError):
        canonical.time(written)


def test_micro_time_has_exactly_six_digits() -> None:
    assert canonical.micro_time("2026-01-02T03:04:05.100000+01:00") == "2026-01-02T02:04:05.100000Z"
    with pytest.raises(ValueError, match="cannot parse"):
        canonical.micro_time("2026-01-02T03:04:05.1Z")
