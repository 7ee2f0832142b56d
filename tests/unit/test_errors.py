"""Every error class declares its code, fields and text; it pickles; its text and code are stable."""

import copy
import importlib
import pickle
import pkgutil
import string
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import penstock
from penstock.cli.common.failure import CommandFailed
from penstock.client.errors import Refused, TimedOut
from penstock.errors import (
    BadMagic,
    CallerError,
    ConfigError,
    ErrorCode,
    FieldOutOfRange,
    FrameTooLarge,
    HookRefused,
    NotSubscribed,
    OperatorError,
    PeerError,
    PenstockError,
)
from penstock.pipeline.errors import NoSuchTable, NoSuchTopics
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.lamamq import LAMAMQ

OF_PROTOCOLS = ("rheos-", "fleximq-", "herald-", "lamamq-")
CATALOGUE = Path(__file__).with_name("error_catalogue.txt")

# Codes of several classes. All others belong to one class and the classes derived from it.
SHARED = {
    ErrorCode.BAD_OPTION: {"BadOption", "InvalidGroup", "InvalidOption", "InvalidSchema"},
    ErrorCode.CANNOT_KEEP: {"CannotKeep", "JobFailed"},
    ErrorCode.CANNOT_READ: {
        "CannotRead",
        "CannotReadCapture",
        "CaptureUnreadable",
        "NoSuchTable",
        "NoSuchTopics",
        "RegistryFailed",
    },
    ErrorCode.FIELD_OUT_OF_RANGE: {"FieldOutOfRange", "InvalidMessage", "Unencodable"},
    ErrorCode.FRAME_TOO_LARGE: {"FrameTooLarge", "TooLarge"},
    ErrorCode.INVALID_CONFIG: {
        "CannotRebuild",
        "ColumnChanged",
        "ConfigError",
        "NotAQuery",
        "PartitionsChanged",
        "QueryFailed",
    },
    ErrorCode.LOG_IN_USE: {"LogInUse", "WarehouseInUse"},
    ErrorCode.REFUSED: {"CommandFailed", "Refused"},
    ErrorCode.UNSUPPORTED: {"NoJava", "Unsupported"},
}


def subclasses(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def error_classes() -> list[type[PenstockError]]:
    """Every class that can be raised, from all modules of the package."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {each for each in subclasses(PenstockError) if hasattr(each, "code")}
    return sorted(found, key=public_name)


def public_name(kind: type[PenstockError]) -> str:
    in_errors = kind.__module__.startswith("penstock.errors.")
    return f"{'penstock.errors' if in_errors else kind.__module__}.{kind.__name__}"


def type_name(hint: object) -> str:
    return hint.__name__ if type(hint) is type or hint is Protocol else str(hint)  # type: ignore[attr-defined]


def sample(name: str, hint: str, place: int) -> object:
    """A value of a field's type that can be told from those of the other fields."""
    values: dict[str, object] = {
        "str": f"<{name}>",
        "bool": True,
        "int": 41 + place,
        "float": 2.5,
        "bytes": b"\xfa\xce",
        "object": "o",
        "Protocol": HERALD,
        "int | None": 6,
        "str | None": "<id>",
        "tuple[bytes, ...]": (b"\xab\xcd", b"\xef"),
        "tuple[tuple[int, penstock.client.errors.Refused], ...]": (
            (3, Refused(LAMAMQ, 3, "late")),
        ),
        "tuple[penstock.errors.operator.ConfigError, ...]": (
            ConfigError("file", "key", "problem"),
            ConfigError("variable", "other", "fault"),
        ),
    }
    return values[hint]


def fields_of(kind: type[PenstockError]) -> list[tuple[str, str]]:
    hints = get_type_hints(kind)
    return [(name, type_name(hints[name])) for name in kind.__match_args__]


def sample_error(kind: type[PenstockError]) -> PenstockError:
    fields = enumerate(fields_of(kind))
    return kind(*[sample(name, hint, place) for place, (name, hint) in fields])


CLASSES = error_classes()
every_class = pytest.mark.parametrize("kind", CLASSES, ids=public_name)


def catalogued(kind: type[PenstockError]) -> str:
    bases = " ".join(base.__name__ for base in kind.__mro__[1:-3])
    fields = ", ".join(f"{name}: {hint}" for name, hint in fields_of(kind))
    return (
        f"{public_name(kind)}\n"
        f"  code: {kind.code}\n"
        f"  bases: {bases}\n"
        f"  fields: {fields or 'none'}\n"
        f"  text: {sample_error(kind)}\n"
    )


def test_codes_bases_fields_and_texts_are_those_of_the_catalogue() -> None:
    """To add an error, add its entry to the file. Change an entry only with its clients."""
    assert "\n".join(catalogued(kind) for kind in CLASSES) == CATALOGUE.read_text()


def test_a_code_belongs_to_one_class_unless_shared_by_intent() -> None:
    owners: dict[str, set[str]] = defaultdict(set)
    for kind in CLASSES:
        if "code" in vars(kind):
            owners[kind.code].add(kind.__name__)
    assert {code: names for code, names in owners.items() if len(names) > 1} == SHARED
    of_protocols = {code for code in owners if code.startswith(OF_PROTOCOLS)}
    assert owners.keys() == set(ErrorCode) | of_protocols


@every_class
def test_an_error_says_who_must_act(kind: type[PenstockError]) -> None:
    assert (
        len([base for base in (PeerError, CallerError, OperatorError) if issubclass(kind, base)])
        == 1
    )


def state(error: PenstockError) -> tuple[object, ...]:
    fields = {name: repr(getattr(error, name)) for name in error.__match_args__}
    return type(error), repr(error.args), fields, str(error), error.code, repr(vars(error))


@every_class
def test_an_error_pickles_and_copies_with_its_fields_and_text(kind: type[PenstockError]) -> None:
    error = sample_error(kind)
    error.add_note("while testing")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert state(pickle.loads(pickle.dumps(error, protocol))) == state(error)  # noqa: S301
    assert state(copy.copy(error)) == state(error)
    assert state(copy.deepcopy(error)) == state(error)


@every_class
def test_fields_hold_the_arguments_in_order(kind: type[PenstockError]) -> None:
    error = sample_error(kind)
    assert tuple(getattr(error, name) for name in kind.__match_args__) == error.args
    named = dict(zip(kind.__match_args__, error.args, strict=True))
    assert state(kind(**named)) == state(error)


@every_class
def test_a_class_has_a_template_of_its_fields_or_its_own_text(kind: type[PenstockError]) -> None:
    if kind.__str__ is not PenstockError.__str__:
        return
    parts = string.Formatter().parse(kind.template)
    named = {name.partition(".")[0] for _, name, _, _ in parts if name is not None}
    assert named <= set(kind.__match_args__)


def test_a_template_that_names_no_field_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(ValueError, match="not in tuple"):

        class Misspelt(CallerError):
            template = "{sise} bytes"

            size: int


@pytest.mark.parametrize(
    "error",
    [
        lambda: FrameTooLarge("frame", 1),  # type: ignore[call-arg]
        lambda: FrameTooLarge("frame", 1, 2, 3),  # type: ignore[call-arg]
        lambda: FrameTooLarge("frame", 1, 2, size=3),  # type: ignore[misc]
        lambda: FrameTooLarge("frame", 1, limit=2),  # type: ignore[call-arg]
        lambda: FieldOutOfRange("field", 1),  # type: ignore[call-arg]
    ],
)
def test_a_field_that_is_missing_unknown_or_given_twice_is_a_type_error(error: type) -> None:
    with pytest.raises(TypeError):
        error()


def test_defaults_fill_the_last_fields() -> None:
    assert FieldOutOfRange("field", 9, 8).args == ("field", 9, 8, 0)
    assert FieldOutOfRange("field", 9, value_max=8).args == ("field", 9, 8, 0)
    assert FieldOutOfRange("field", 9, value_min=2, value_max=8).args == ("field", 9, 8, 2)


def test_fields_are_read_only() -> None:
    error = FrameTooLarge("frame", 2, 1)
    with pytest.raises(AttributeError):
        error.size = 3  # type: ignore[misc]


def test_the_cause_of_an_error_is_kept() -> None:
    cause = OSError("disk")
    with pytest.raises(ConfigError) as raised:
        raise ConfigError("file", "key", "problem") from cause
    assert raised.value.__cause__ is cause


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BadMagic(b"\x01", (b"\xfa\xfb",)), "frame starts with 01, expected fa fb"),
        (CommandFailed("refused"), "refused"),
        (ConfigError("penstock.toml", "", "not TOML"), "penstock.toml: not TOML"),
        (HookRefused("audit", ""), "refused by hook 'audit'"),
        (NotSubscribed("x" * 300), f"there is no subscription to '{'x' * 200}'"),
        (NoSuchTable("t", ""), "there is no table 't'; there are: none"),
        (
            NoSuchTopics("x" * 300),
            (
                f"no topic can be meant by '{'x' * 200}': levels are + or * for any one, "
                "# or > at the end for the rest"
            ),
        ),
        (TimedOut("ping", 30.0), "ping got no answer within 30 s"),
        (FrameTooLarge("{size}", 2, 1), "{size} of 2 bytes exceeds the limit of 1"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, PenstockError) else "",
)
def test_texts_that_depend_on_values(error: PenstockError, text: str) -> None:
    assert str(error) == text
