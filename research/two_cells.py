"""Tries to mend two cells in which the forests trail, and judges each try on tables that
were named before any run on them.

Cell (a): many classes on few rows of a pure account (``rpf``). Cell (b): tables without
numbers on a ``gdp`` account (``nbrt``).

Ideas for (a), each a function of the declaration, the public size and ε:

* ``rpf`` with other shares of ε for splits, fewer levels, or one level at a time;
* *noisy Bayes*: integer noise on the counts of every (column, code, class), with a
  hierarchical prior (the counts of all classes pooled) as smoothing, alone;
* a forest on a part of ε, and noisy Bayes on the rest, as the sum of log-probabilities.

Ideas for (b):

* ``rpf`` on the ``gdp`` account, whose splits are selected, in place of ``nbrt``;
* ``nbrt`` and ``rpf`` at half of μ² each, as the sum of log-probabilities;
* *screening*: a tenth of μ² buys noisy counts of every (column, code, class), and
  ``nbrt`` sees only the columns whose counts differ most between classes;
* ``nbrt`` on a part of μ², and noisy Bayes on the rest, as for (a).

Rules may use numbers of rows, classes, columns and categories, and the budget.

Shown tables, on which settings are chosen: of (a) zoo, movement_libras, yeast, segment,
vehicle, wine_quality_red and 1,000 rows each of pendigits and letter; of (b) car,
nursery, kr_vs_kp, mushroom, tic_tac_toe, vote and splice (the issue names its result).
Tables held out: those of :mod:`research.two_cells_tables`, run once, at ε = 1, on five
splits or more. A rule that gains less than 0.3 points on their mean is dropped.
"""
