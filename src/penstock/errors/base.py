"""The declarative base of every error, and the classes that say who must act."""

import re
from typing import ClassVar, Final, dataclass_transform, get_origin

__all__ = ["CallerError", "OperatorError", "PeerError", "PenstockError", "WireError"]

_NAME: Final = re.compile(r"\{(\w+)")


@dataclass_transform(eq_default=False, frozen_default=True)
class PenstockError(Exception):
    """An error that Penstock raises on purpose.

    A subclass declares its code, the template of its text, and its fields:

        class FrameTooLarge(WireError):
            code = ErrorCode.FRAME_TOO_LARGE
            template = "{part} of {size} bytes exceeds the limit of {size_max}"

            part: str
            size: int
            size_max: int

    Each annotated name is a field, except a ClassVar. Fields of the base class come first. The
    constructor takes the fields in this order or by name; a field with a default may be left out.
    Type checkers derive the same constructor from the declaration (PEP 681).

    The values are kept in `args`, in the order of the fields, and each field reads its place
    there: so an error pickles and copies as any exception does. Fields are read-only. Errors are
    compared by identity.

    A subclass overrides `__str__` if its text needs more than `str.format` can do.
    """

    code: ClassVar[str]
    """Of ErrorCode, or a code of a protocol: `<label>-<fault>`, stated in its own errors."""
    template: ClassVar[str]
    is_temporary: ClassVar[bool] = False
    """Whether the same request may succeed later, or at another node. Protocols tell clients by the
    code of the answer."""

    __match_args__: ClassVar[tuple[str, ...]] = ()  # the names of all fields
    _defaults: ClassVar[tuple[object, ...]] = ()  # of the last fields
    _format: ClassVar[str] = ""  # the template with places in `args` for names of fields

    def __init_subclass__(cls) -> None:
        """Make a property of each field; raise ValueError if the template names anything else."""
        super().__init_subclass__()
        body = vars(cls)
        annotations: dict[str, object] = cls.__annotations__
        fields = [name for name, kind in annotations.items() if get_origin(kind) is not ClassVar]
        cls._defaults += tuple([body[name] for name in fields if name in body])
        for place, name in enumerate(fields, len(cls.__match_args__)):
            setattr(cls, name, _field(place))
        names = (*cls.__match_args__, *fields)
        cls.__match_args__ = names  # type: ignore[misc]  # mypy allows it in the body alone
        if "template" in body:
            cls._format = _NAME.sub(lambda found: f"{{{names.index(found[1])}", cls.template)

    def __init__(self, *values: object, **named: object) -> None:
        """Store the fields; raise TypeError if one is missing, unknown or given twice."""
        if named or len(values) != len(self.__match_args__):
            values = self._complete(values, named)
        self.args = values

    @classmethod
    def _complete(cls, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """Return the value of each field: given by position, by name, or its default."""
        names, defaults = cls.__match_args__, cls._defaults
        rest = names[len(values) :]
        if rest and not named and len(rest) <= len(defaults):
            return values + defaults[-len(rest) :]
        given = dict(zip(reversed(names), reversed(defaults), strict=False)) | named
        if len(values) <= len(names) and named.keys() <= set(rest) <= given.keys():
            return (*values, *[given[name] for name in rest])
        message = f"{cls.__name__} takes {', '.join(names)}; got {values} and {named}"
        raise TypeError(message)

    def __str__(self) -> str:
        return self._format.format(*self.args)


def _field(place: int) -> property:
    """Return the property of the field whose value is `args[place]`."""
    return property(lambda error: error.args[place])


class PeerError(PenstockError):
    """The other end of a connection must act."""


class CallerError(PenstockError):
    """The calling code must act."""


class OperatorError(PenstockError):
    """The operator of the process must act. The text is one line that says how."""


class WireError(PeerError):
    """Bytes from a peer that its protocol does not allow."""
