"""Defines the limits of declarations, forests and composition.

A limit is a public fact, so an error may state it. A long comment stands above its
limit.
"""

# Declarations

MAX_FEATURES = 2_000  # Features of a schema
# Categories of a feature or of a column partition, without OTHER and MISSING
MAX_CATEGORIES = 255
MAX_CLASSES = 1_000  # Classes of a label
MAX_LABELS = 16  # Labels of a dataset
MAX_NAME_CHARS = 128  # Characters of a column's or a partition's name
MAX_CATEGORY_CHARS = 256  # Characters of a category or class
MAX_MISSING_VALUES = 32  # Texts that stand for an empty cell
MAX_PARTITIONS = 6  # Partitions of a dataset
MAX_HASH_CELLS = 1_024  # Cells of a hash partition
# Rows of all uploads to a dataset together; the proofs of sums and counts assume this
# bound.
MAX_ROWS_PER_DATASET = 2**31 - 1

# Amounts, events and composition

# Significant digits of an amount that a request states as a JSON number
MAX_JSON_NUMBER_DIGITS = 15
MAX_DECIMAL_EXPONENT = 99  # Power of ten of an amount in a request
# Cap of a ``zcdp`` or ``gdp`` account as ε: its ρ or μ², in steps of 10⁻¹², fits into
# 64 bits.
MAX_CAP_EPSILON_WITH_DELTA = 10**6
MAX_EVENT_PARTS = 200  # Nodes of the event tree of an external mechanism
MAX_EVENT_COUNT = 10**12  # Any count in an event: repetitions, coordinates, candidates
# Numerator and denominator of a sensitivity or a scale in an event
MAX_EVENT_SCALE = 10**60
# Additions that the exact maximum over joint cells may take; beyond it the balance is a
# sound upper bound.
MAX_COMPOSITION_WORK = 2**23

# Models and evaluations

MAX_TREES = 1_024  # Trees of a model
MAX_DEPTH = 16  # Depth of a tree
# Trees × leaves of a model: as many as 1,024 trees of depth 12 have. Bounds the time of
# growth, which visits every node of a complete tree.
MAX_LEAVES = 2**22
# Trees × leaves × classes of a model: bounds memory, artifact and prediction by public
# numbers.
MAX_TREE_LEAF_CELLS = 2**26
MAX_CONFUSION_CLASSES = 100  # Classes of a confusion matrix

# Statistics

MAX_STATISTICS_TABLES = 20  # Tables of one request
MAX_STATISTICS_CELLS = 10_000  # Cells of all tables of a request together
# Candidates of quantiles of all groups of all tables: bounds memory and messages
MAX_STATISTICS_COUNTS = 1_000_000
MAX_STATISTICS_BINS = 1_000  # Bins of a number
MAX_STATISTICS_CONDITIONS = 10  # Conditions of one table
MAX_STATISTICS_QUANTILES = 9  # Quantiles of one table

# Predictions

MAX_PREDICTION_ROWS = 10_000  # Rows of a prediction request
# Rows times features or classes of the model, whichever are more, in a prediction
# request, also of cells that it lacks.
MAX_PREDICTION_CELLS = 1_000_000
# Problems that one answer lists, so that the answer is not larger than the request
MAX_REPORTED_PROBLEMS = 100
