"""Rows of neighbouring datasets: uploads that differ in one row or one unit, under one
declaration.
"""

from typing import Any

HEADER = "age,colour,income\n"
ROWS = "".join(
    f"{age},{'red' if age % 2 else 'blue'},{'low' if age % 3 else 'high'}\n"
    for age in range(20, 60)
)
NEIGHBOURS = {
    "a row more": ROWS + "119,green,high\n",
    "a row fewer": "".join(ROWS.splitlines(keepends=True)[:-1]),
    "another row": ROWS.replace("20,blue,low", "77,red,high"),
    "a row of unknown label": ROWS + "33,red,\n",
    "no rows": "",
}
UNIT_HEADER = "age,colour,income,patient\n"
UNIT_ROWS = "".join(
    f"{row},patient {number % 25}\n" for number, row in enumerate(ROWS.splitlines())
)
UNIT_NEIGHBOURS = {
    "a unit more": UNIT_ROWS
    + "119,green,high,another\n33,red,,another\n12,blue,low,another\n",
    "a unit fewer": "".join(
        row
        for row in UNIT_ROWS.splitlines(keepends=True)
        if not row.endswith("patient 3\n")
    ),
}
UNIT = {"column": "patient", "max_rows": 2}

DECLARATION: dict[str, Any] = {
    "name": "census",
    "schema": {
        "features": [
            {"name": "age", "type": "numeric", "lower": 0, "upper": 120},
            {"name": "colour", "type": "categorical", "categories": ["red", "blue"]},
        ],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "partitions": [{"name": "shard", "kind": "hash", "cells": 2}],
}
ALGORITHMS = {"pure": "rpf", "gdp": "nbrt"}
BUDGETS = {
    "pure": {"accountant": "pure", "epsilon": "9"},
    "gdp": {"accountant": "gdp", "epsilon": "9", "delta": "0.000001"},
}
