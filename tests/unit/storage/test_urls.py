"""Which URLs name an object store."""

import pytest

from penstock.storage.object_store import ObjectStore
from penstock.storage.urls import is_url, url_problem


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/a/b",
        "gs://bucket/a",
        "abfss://container@account.dfs.core.windows.net/a",
        "file:///var/lib/store",
    ],
)
def test_urls_of_stores_are_accepted(url: str) -> None:
    assert is_url(url)
    assert url_problem(url) is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://bucket/a", "begins with one of s3://"),
        ("bucket/a", "begins with one of s3://"),
        ("s3:///a", "no bucket"),
        ("s3://key:secret@bucket/a", "no credentials"),
        ("s3://bucket/a?endpoint_override=secret", "no ?"),
        ("file://host/a", "file:///path"),
        ("file:///", "file:///path"),
    ],
)
def test_other_urls_are_refused_and_not_repeated(url: str, problem: str) -> None:
    found = url_problem(url)
    assert found is not None
    assert problem in found
    assert "secret" not in found
    with pytest.raises(ValueError, match=r"URL|file:///"):
        ObjectStore(url)
