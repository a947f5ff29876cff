"""What the policies of a space offer."""

from tilewright.schedule.space.policies import factors


def test_divisors() -> None:
    assert factors(1) == [1] and factors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
