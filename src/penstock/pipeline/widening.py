"""Wider types of columns, to which all values of the narrower type can be converted exactly."""

import pyarrow as pa

__all__ = ["widened"]


def widened(old: pa.Schema, new: pa.Schema) -> pa.Schema | None:
    """Return the columns of `old` with the wider types of `new`; None if there are none.

    Types that are neither equal nor wider stay those of `old`. A struct gets the fields that it
    lacks.
    """
    known = {field.name: field.type for field in new}
    fields = [
        pa.field(field.name, wider(field.type, known[field.name])) if field.name in known else field
        for field in old
    ]
    found = pa.schema(fields)
    return None if found.equals(old) else found


def wider(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return `new` if it is wider, else `old`; of nested types, the widest of each part."""
    if _is_wider(old, new):
        return new
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(pa.field("element", wider(old.value_type, new.value_type)))
    if pa.types.is_map(old) and pa.types.is_map(new):
        return pa.map_(old.key_type, wider(old.item_type, new.item_type))
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _wider_struct(old, new)
    return old


def _wider_struct(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    known = {new.field(number).name: new.field(number) for number in range(new.num_fields)}
    fields = []
    for number in range(old.num_fields):
        field = old.field(number)
        other = known.pop(field.name, None)
        kind = field.type if other is None else wider(field.type, other.type)
        fields.append(pa.field(field.name, kind))
    return pa.struct([*fields, *known.values()])


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    if pa.types.is_int32(old):
        return bool(pa.types.is_int64(new))
    if pa.types.is_float32(old):
        return bool(pa.types.is_float64(new))
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        before, after = (each.precision - each.scale for each in (old, new))
        return bool(after >= before and new.scale >= old.scale and old != new)
    return False
