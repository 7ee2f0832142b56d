"""Names of certificates are written as RFC 4514 does, and no two subjects alike."""

import pytest

from penstock.transport.certificate_names import names_of


def subject(*parts: tuple[str, str]) -> dict[str, object]:
    return {"subject": tuple(((name, value),) for name, value in parts)}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([("commonName", "press-4")], "CN=press-4"),
        (
            [("countryName", "DE"), ("organizationName", "Plant"), ("commonName", "press-4")],
            "CN=press-4,O=Plant,C=DE",
        ),
        ([("commonName", "a,O=Plant")], "CN=a\\,O=Plant"),
        ([("commonName", 'a+b"c<d>e;f\\g')], 'CN=a\\+b\\"c\\<d\\>e\\;f\\\\g'),
        ([("commonName", " a ")], "CN=\\ a\\ "),
        ([("commonName", "#a")], "CN=\\#a"),
        ([("commonName", "a\0b")], "CN=a\\00b"),
        ([("serialNumber", "7")], "serialNumber=7"),
    ],
)
def test_a_subject_is_written_as_rfc_4514_does(parts: list[tuple[str, str]], text: str) -> None:
    assert names_of(subject(*parts)) == {f"subject:{text}"}


def test_values_cannot_imitate_other_parts() -> None:
    imitation = names_of(subject(("commonName", "press-4,O=Plant")))
    assert imitation != names_of(subject(("organizationName", "Plant"), ("commonName", "press-4")))


def test_a_part_with_several_values() -> None:
    certificate = {"subject": ((("commonName", "a"), ("userId", "b")),)}
    assert names_of(certificate) == {"subject:CN=a+UID=b"}


def test_alternative_names_have_their_type() -> None:
    certificate = {
        "subjectAltName": (
            ("DNS", "press-4.example"),
            ("IP Address", "10.1.2.3"),
            ("URI", "spiffe://plant/press-4"),
            ("email", "press@plant.example"),
            ("DirName", ((("commonName", "a"),),)),
            ("othername", "<unsupported>"),
        )
    }
    assert names_of(certificate) == {
        "DNS:press-4.example",
        "IP:10.1.2.3",
        "URI:spiffe://plant/press-4",
        "email:press@plant.example",
    }


def test_a_subject_alternative_name_cannot_imitate_a_subject() -> None:
    assert names_of({"subjectAltName": (("subject", "CN=a"),)}) == frozenset()
