"""Published figures of nonparametric classification, and the papers' bandwidths.

Simplex Random Features, Tables 2 and 3: accuracy and its standard error over 500 draws. The
bandwidths are those in the paper's published code, found there by a validation search.
Chefs' Random Tables, Table 1: accuracy in percent with M = 128, without errors.
"""

SIGMA = {
    "abalone": 0.41331138,
    "banknote": 1.06445901,
    "car": 0.77656608,
    "yeast": 0.90918797,
    "cmc": 0.48389667,
    "nursery": 0.18788887,
    "wifi": 0.21997651,
    "chess": 0.25754408,
}
"""Inputs are multiplied by it."""

MEAN_V = {
    "abalone": 1.7,
    "banknote": 2.6,
    "car": 5.0,
    "yeast": 3.1,
    "cmc": 2.0,
    "nursery": 1.4,
    "wifi": 0.8,
    "chess": 2.3,
}
"""Table 2's mean of sigma |x + y|."""

Figure = tuple[float, float]

TABLE_2: dict[str, dict[str, Figure]] = {
    "abalone": {"simplex": (0.1421, 0.0002), "simplex_plus": (0.1419, 0.0002)},
    "banknote": {"simplex": (0.7229, 0.0012), "simplex_plus": (0.7132, 0.0012)},
    "car": {"simplex": (0.6754, 0.0004), "simplex_plus": (0.6751, 0.0004)},
    "yeast": {"simplex": (0.3202, 0.0004), "simplex_plus": (0.3208, 0.0004)},
    "cmc": {"simplex": (0.4047, 0.0005), "simplex_plus": (0.4065, 0.0005)},
    "nursery": {"simplex": (0.6874, 0.0005), "simplex_plus": (0.6917, 0.0004)},
    "wifi": {"simplex": (0.6314, 0.0018), "simplex_plus": (0.6473, 0.0018)},
    "chess": {"simplex": (0.2000, 0.0001), "simplex_plus": (0.2000, 0.0001)},
}
"""m = d, the data's own d."""

_TABLE_3_COLUMNS = ("iid", "orthogonal", "hadamard", "simplex", "fast_simplex")
_TABLE_3_ROWS = {
    "abalone": ((0.1432, 3), (0.1445, 3), (0.1447, 3), (0.1455, 3), (0.1462, 3)),
    "banknote": ((0.6441, 24), (0.6612, 25), (0.6596, 24), (0.7196, 19), (0.7296, 17)),
    "car": ((0.6768, 6), (0.6788, 6), (0.6784, 6), (0.6797, 6), (0.6800, 6)),
    "yeast": ((0.3187, 6), (0.3193, 6), (0.3171, 6), (0.3187, 6), (0.3195, 6)),
    "cmc": ((0.4088, 9), (0.4149, 9), (0.4159, 9), (0.4206, 8), (0.4222, 8)),
    "nursery": ((0.5870, 13), (0.6213, 19), (0.6193, 19), (0.7030, 8), (0.7037, 8)),
    "wifi": ((0.4914, 26), (0.5224, 25), (0.5310, 24), (0.6509, 27), (0.6533, 27)),
    "chess": ((0.2011, 2), (0.2017, 2), (0.2016, 2), (0.2021, 2), (0.2021, 2)),
}
TABLE_3: dict[str, dict[str, Figure]] = {
    name: {
        column: (accuracy, error * 1e-4)
        for column, (accuracy, error) in zip(_TABLE_3_COLUMNS, row, strict=True)
    }
    for name, row in _TABLE_3_ROWS.items()
}
"""m = d, the data padded with zeros to a power of two; errors above in units of 1e-4."""

_CRT_COLUMNS = (
    "trig",
    "positive",
    "gerf",
    "poisson",
    "geometric",
    "oprf",
    "poisson_plus",
    "geometric_plus",
)
_CRT_ROWS = {
    "abalone": (12.0, 16.0, 17.0, 18.0, 18.3, 17.1, 14.0, 15.1),
    "banknote": (66.2, 83.4, 92.4, 84.4, 94.5, 92.6, 80.1, 85.6),
    "car": (66.3, 69.2, 70.9, 66.3, 66.3, 69.5, 66.3, 67.2),
    "yeast": (29.7, 34.4, 42.9, 36.9, 35.9, 44.4, 29.7, 31.0),
    "cmc": (46.6, 45.1, 47.8, 46.6, 47.3, 46.3, 35.5, 43.5),
    "nursery": (31.3, 77.4, 63.8, 77.1, 77.1, 78.9, 77.3, 71.0),
    "wifi": (15.2, 88.8, 93.3, 95.3, 95.8, 93.3, 77.2, 82.9),
    "chess": (16.5, 20.2, 20.4, 19.1, 19.5, 20.2, 19.2, 22.5),
}
CRT_TABLE_1: dict[str, dict[str, float]] = {
    name: {column: percent / 100 for column, percent in zip(_CRT_COLUMNS, row, strict=True)}
    for name, row in _CRT_ROWS.items()
}
"""Shares, M = 128."""
