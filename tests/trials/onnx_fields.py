"""ONNX files with one changed protobuf field, against the check and ONNX Runtime.

    python -m tests.trials.onnx_fields --count 500 --seed 0 --out models

An exported model is parsed, one field of one message is set, removed, doubled or exchanged, and it
is written anew; some get fields that no parser knows, or tags whose upper bits parsers drop. A
folder with it must be refused by one sentence or give finite actions: no crash, no other exception,
at most 2 GB, no file read or written outside of it, and nothing that ONNX's own parser reads and
`deploy.model_file` does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from deploy.contract_file import CONTRACT
from deploy.model_file import check_model
from deploy.runtime import Policy
from tests.deploy import folders
from tests.trials import forked
from tests.trials.many import Found, many

MODEL = "model.onnx"
SECRET = "outside.bin"
NUMBERS = (
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    14,
    15,
    16,
    17,
    22,
    23,
    25,
    26,
    99,
    -1,
    -2,
    2**31 - 1,
    -(2**31),
    2**40,
)
TEXTS = (
    "", "x", "ai.onnx.ml", "com.microsoft", "ai.onnx", "ai.onnx.training", "location", SECRET,
    f"../{SECRET}", "/etc/passwd", "offset", "length", "to", "value", "value_string", "body",
    "action", "depth", "If",
    "Loop", "Scan", "Expand", "Tile", "ConstantOfShape", "Concat", "Range", "Gather",
    "NonZero", "Cast", "Add", "MatMul", "Reshape", "StringConcat", "RandomNormal", "Pad", "Gemm",
    "FusedMatMul", "ReadFile", "Optional", "SequenceEmpty", "Identity", "\u00e9\0", "a" * 5000,
)  # fmt: skip


def every(message: Message) -> list[Message]:
    """A message and those in it."""
    found = [message]
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in value if field.is_repeated else [value]:
                found += every(one)
    return found


def drawn(field: FieldDescriptor, messages: list[Message], chance: random.Random) -> Any:
    """A value of a field: one of the same kind from elsewhere in the model, or a strange one."""
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        same = [one for one in messages if one.DESCRIPTOR is field.message_type]
        return chance.choice(same) if same and chance.random() < 0.7 else None
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        names = [one.name for one in messages if getattr(one, "name", "")]
        text = chance.choice(names if names and chance.random() < 0.4 else TEXTS)
        return (
            text
            if field.type == FieldDescriptor.TYPE_STRING
            else text.encode() * chance.choice((1, 4))
        )
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return chance.choice((0.0, 1.0, -1e30, float("nan"), float("inf")))
    if field.type == FieldDescriptor.TYPE_ENUM:
        return chance.choice(field.enum_type.values).number
    value = chance.choice(NUMBERS)
    return (
        value % 2**31
        if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT64)
        else value
    )


def change(model: Message, chance: random.Random) -> str:
    """Change one field of one message; what was done."""
    messages = every(model)
    kinds = sorted({one.DESCRIPTOR.name for one in messages})
    kind = chance.choice(kinds)  # else nearly all would be nodes
    message = chance.choice([one for one in messages if one.DESCRIPTOR.name == kind])
    field = chance.choice(message.DESCRIPTOR.fields)
    there = getattr(message, field.name)
    what = chance.randrange(6)
    if what == 0:
        message.ClearField(field.name)
        done = "removed"
    elif field.is_repeated and len(there) and what <= 2:
        one = chance.randrange(len(there))
        if what == 1:
            del there[one]
            done = "one removed"
        else:
            copies = list(there)
            chance.shuffle(copies)
            copies.append(chance.choice(copies))
            kept = [
                type(c).FromString(c.SerializeToString()) if isinstance(c, Message) else c
                for c in copies
            ]
            message.ClearField(field.name)
            getattr(message, field.name).extend(kept)
            done = "shuffled, one doubled"
    else:
        value = drawn(field, messages, chance)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            holder = there.add() if field.is_repeated else there
            if value is None:
                holder.SetInParent()
                text = [
                    f for f in holder.DESCRIPTOR.fields if f.type != FieldDescriptor.TYPE_MESSAGE
                ]
                for inner in text:
                    if not inner.is_repeated:
                        setattr(holder, inner.name, drawn(inner, messages, chance))
            else:
                holder.CopyFrom(type(value).FromString(value.SerializeToString()))
        elif not field.is_repeated:
            setattr(message, field.name, value)
        elif len(there) and what < 5:
            there[chance.randrange(len(there))] = value
        else:
            there.append(value)
        done = "set"
    return f"{kind}.{field.name} {done}"


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    text = b""
    while number >= 0x80:
        text, number = text + bytes([number & 0x7F | 0x80]), number >> 7
    return text + bytes([number])


def hidden(model: Message, chance: random.Random) -> tuple[bytes, str, bool]:
    """The model with one more field, which parsers may read differently."""
    number = chance.choice((1, 3, 5, 6, 7, 8, 9, 13, 14, 20, 25, 99, 2**29 - 1))
    wire = chance.randrange(8)
    body = {0: varint(1), 1: bytes(8), 2: varint(4) + b"abcd", 5: bytes(4)}.get(wire, b"")
    tag = (number << 3 | wire) + chance.choice((0, 1 << 32, 1 << 35, 1 << 63, 1 << 69))
    strange = bool(tag >> 32) or number in (13, 25, 99, 2**29 - 1) or not body
    return model.SerializeToString() + varint(tag) + body, f"field {tag} {number} {wire}", strange


def external(model: Any, chance: random.Random) -> str:
    """Numbers of a tensor in a file outside of the folder."""
    tensor = chance.choice(model.graph.initializer)
    place = chance.choice((f"../{SECRET}", SECRET, "/etc/passwd", f"./../x/../{SECRET}"))
    tensor.external_data.add(key="location", value=place)
    if chance.random() < 0.7:
        tensor.data_location = onnx.TensorProto.EXTERNAL
    if chance.random() < 0.7:
        tensor.ClearField("raw_data")
    return f"{tensor.name} in {place}"


def large(model: Any, chance: random.Random) -> str:
    """An operator whose result is far larger than its file."""
    size = chance.choice(([2**31], [2**16, 2**16], [2**33], [2**62], [-1], [10**5, 10**4]))
    graph = model.graph
    graph.initializer.add(name="size", data_type=7, dims=[len(size)], int64_data=size)
    taken = graph.output[0].name
    graph.node.add(op_type="ConstantOfShape", input=["size"], output=["much"])
    graph.node.add(op_type="ReduceSum", input=["much"], output=["sum"])
    node = next(one for one in graph.node if taken in one.output)
    node.output[list(node.output).index(taken)] = "before"
    graph.node.add(op_type="Add", input=["before", "sum"], output=[taken])
    return f"of {size}"


def prepare(materials: Path) -> None:
    """Folders of a policy with recurrent states."""
    materials.mkdir(parents=True)
    folders.write(materials, *folders.remembering())


def play(words: list[str]) -> int:
    """Check a model as a robot's computer would, and act once; 0, or 2 with a sentence."""
    try:
        policy = Policy(words[0])
        seen = folders.SPACE.sample()
        for _ in range(2):
            policy.act(seen)
    except (ValueError, FloatingPointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def try_one(number: int, seed: int, materials: Path, folder: Path) -> Found:
    """Change a model and run it."""
    chance = random.Random(f"{seed} {number}")
    shutil.copytree(materials, folder / "policy")
    (folder / SECRET).write_bytes(bytes(4096))
    path = folder / "policy" / MODEL
    model = onnx.load_from_string(path.read_bytes())
    data, strange = b"", False
    if number % 10 == 0:
        kind, (data, done, strange) = "hidden", hidden(model, chance)
    elif number % 10 == 1:
        kind, done = "external", external(model, chance)
    elif number % 10 == 2:
        kind, done = "large", large(model, chance)
    else:
        kind, done = "field", change(model, chance)
    data = data or model.SerializeToString()
    path.write_bytes(data)
    contract = json.loads((folder / "policy" / CONTRACT).read_text())
    contract["model"]["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / "policy" / CONTRACT).write_text(json.dumps(contract))
    before = sorted(os.walk(folder))
    verdict = forked.run(play, [str(folder / "policy")], folder)
    faults = verdict.faults()
    there = {name for _, _, names in os.walk(folder) for name in names} - {"out", "err"}
    if there != {name for _, _, names in before for name in names}:
        faults.append(f"new files: {there}")
    if (strange or kind == "external") and verdict.status == 0:
        faults.append("it was not refused")
    if verdict.status == 0:
        faults += read_otherwise(data)
    return Found(kind, faults, f"status {verdict.status}", f"{done}\n{verdict.err[-700:]}")


def read_otherwise(data: bytes) -> list[str]:
    """What an accepted model has that the check should have refused, by ONNX's own parser."""
    model = onnx.load_from_string(data)
    found = []
    for one in every(model):
        if one.DESCRIPTOR.name == "TensorProto" and (one.external_data or one.data_location):
            found.append(f"numbers of {one.name} are in another file")
        if one.DESCRIPTOR.name == "NodeProto" and one.domain not in ("", "ai.onnx"):
            found.append(f"an operator of {one.domain}")
    check_model(model.SerializeToString(), "written anew")
    return found


def main(argv: list[str] | None = None) -> int:
    """Command line; 1 where a model broke the runtime."""
    return many("onnx_fields", prepare, try_one, 500, argv)


if __name__ == "__main__":
    sys.exit(main())
