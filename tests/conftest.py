"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# The same examples on every run, and no verdict on how busy the machine is: `make fuzz` is for
# inputs nobody has tried, `make test` must fail only when something broke.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
