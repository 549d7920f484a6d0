"""The rooms of `training/`: imports of one direction, and nothing that outgrows its reader."""

import ast

import pytest

from tests.rooms import DOORS, FLOORS, arrows, files, imported, longest_chain

FLOOR = {room: height for height, floor in enumerate(FLOORS) for room in floor}


def test_every_room_has_a_floor():
    assert {room for arrow in arrows() for room in arrow} == set(FLOOR)


def test_imports_lead_to_lower_floors_alone():
    up = {pair: who for pair, who in arrows().items() if FLOOR[pair[1]] >= FLOOR[pair[0]]}
    assert up == {}


def test_a_chain_has_at_most_eight_rooms_below_a_door():
    inside = {pair: who for pair, who in arrows().items() if DOORS not in pair}
    assert len(longest_chain(inside)) <= 8


def test_no_file_imports_itself_by_way_of_others():
    below = {}
    for module, path in files().items():
        names = imported(path)
        below[module] = {other for other in files() for name in names if leads_to(name, other)}
    while free := [module for module, others in below.items() if not others & below.keys()]:
        for module in free:
            del below[module]
    assert below == {}


def leads_to(name, module):
    """Whether an imported name is a module, or is in it."""
    return module in (name, name.rpartition(".")[0])


@pytest.mark.parametrize("module", files())
def test_no_file_has_over_400_lines_and_no_function_over_60(module):
    text = files()[module].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions}
    assert {name: count for name, count in long.items() if count > 60} == {}
