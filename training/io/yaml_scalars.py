"""YAML scalars as text, numbers, booleans and null; ambiguous ones are errors.

YAML 1.1 reads 010 as 8, 1:30 as 90 and yes as true, YAML 1.2 does not, and users may mean either:
the error says what to write instead. 1e-3, which is text in YAML 1.1 only, is accepted as a number.
"""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["AMBIGUOUS", "PLAIN", "ScalarError", "read_scalar"]


class ScalarError(ValueError):
    """Raised for an ambiguous scalar; the message says what to write instead."""


AMBIGUOUS = "ambiguous"
PLAIN = {
    AMBIGUOUS: re.compile(
        r"(?P<switch>yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)"
        r"|(?P<clock>[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*)"
        r"|(?P<base>[-+]?0[bo][0-7_]+|[-+]0x[0-9a-fA-F_]+|0x[0-9a-fA-F]*_[0-9a-fA-F_]*)"
        r"|(?P<octal>[-+]?0[0-9_]+)"
        r"|(?P<grouped>[-+]?(?=[0-9.]*_)(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?)"
    ),
    "int": re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "null": re.compile("~|null|Null|NULL|"),
    "timestamp": re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?"),
}
"""Patterns of plain scalars that are not text, by kind; the first match decides."""


def read_scalar(kind: str, text: str) -> Any:
    """The value of a scalar of a kind: "str" or one of PLAIN but timestamp.

    Raises ScalarError for one of `PLAIN[AMBIGUOUS]`, ValueError for one that is not of the kind.
    """
    if kind == "str":
        if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ScalarError(f"{text[:40]!r} holds a NUL or half a character, which is no text")
        return text
    if PLAIN[AMBIGUOUS].fullmatch(text):
        raise ScalarError(_advice(text))
    kinds = ("float", "int") if kind == "float" else (kind,)
    if not any(PLAIN[one].fullmatch(text) for one in kinds):
        raise ValueError(text)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int" and not text.startswith("0x"):
        return int(text)
    if kind == "int":
        if len(text) > 1000:  # Python could read it, but not write it
            raise ScalarError(
                f"{text[:40]}... is too large; a configuration holds plain values only"
            )
        return int(text, 16)
    value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if math.isinf(value) and "inf" not in text.lower():
        raise ScalarError(f"{text[:40]} is too large for a number")
    return value


def _advice(text: str) -> str:
    """What to write in place of an ambiguous scalar."""
    match = PLAIN[AMBIGUOUS].fullmatch(text)
    assert match is not None
    try:
        readings = " or ".join(_readings(str(match.lastgroup), text[:40]))
    except ValueError:  # it has no digits
        readings = "a decimal number"
    if len(text) > 40:
        return f"{text[:40]}... is ambiguous; write a decimal number, or a text in quotes"
    return f"{text} is ambiguous; write {readings}, or '{text}' in quotes where a text is meant"


def _readings(kind: str, text: str) -> list[str]:
    digits = text.replace("_", "")
    if kind == "switch":
        return ["true" if text.lower() in ("yes", "on") else "false"]
    if kind == "clock":
        value = 0.0
        for part in digits.lstrip("-+").split(":"):
            value = 60 * value + float(part)
        return [f"{-value if digits.startswith('-') else value:.15g}"]
    if kind == "base":
        return [str(int(digits, 0))]
    if kind == "octal":
        eights = [] if {"8", "9"} & set(digits) else [str(int(digits, 8))]
        return list(dict.fromkeys([str(int(digits)), *eights]))
    return [digits]
