"""The JSON Schema of each kind of file, for editors and for programs that write such files."""

from typing import Any, Literal

import msgspec
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from emulator.spec.load import Document

Kind = Literal["topology", "profile", "workload", "model", "protocol", "result"]


def schema(kind: Kind) -> dict[str, Any]:
    """The schema (draft 2020-12) of a kind of file. What needs arithmetic or other files, only loading checks."""
    found = {"$schema": GenerateJsonSchema.schema_dialect}
    if kind == "result":
        from emulator.workload.result import Result

        return found | msgspec.json.schema(Result)
    return found | _model(kind).model_json_schema(schema_generator=_WrittenDefaults)


def _model(kind: Kind) -> type[Document]:
    if kind == "topology":
        from emulator.spec.topology import Topology

        return Topology
    if kind == "profile":
        from emulator.spec.profile import Profile

        return Profile
    if kind == "model":
        from emulator.spec.model import Model

        return Model
    if kind == "protocol":
        from emulator.spec.protocol import Protocol

        return Protocol
    from emulator.spec.workload import Workload

    return Workload


class _WrittenDefaults(GenerateJsonSchema):
    """Shows defaults as a person would write them: `0ns`, not 0."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        inner: dict[str, Any] = dict(schema["schema"])
        # Of several ways to write it, the first one is the default's.
        inner = next(iter(inner["choices"].values())) if inner["type"] == "tagged-union" else inner
        format_value = inner.get("serialization", {}).get("function")
        if found.get("default") is None:
            # Null is not what a person may write.
            found.pop("default", None)
        elif format_value is not None:
            found["default"] = format_value(schema["default"])
        return found

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])
