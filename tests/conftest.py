"""Settings of the whole suite: no test depends on time, and hypothesis tries the same examples every time."""

from hypothesis import settings

settings.register_profile("farspan", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("farspan")
