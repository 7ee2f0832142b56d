import pytest

from tests.support.commands import Commands


@pytest.fixture
def commands(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(capfd, monkeypatch)
