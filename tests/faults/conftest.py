"""The fixture of the fault tests."""

import pytest
from processes import site

site = pytest.fixture(site)
