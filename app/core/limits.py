"""Every public limit, in one file. A limit is a fact that clients may know, so it may appear in an error."""

MAX_FEATURES = 2_000
MAX_CATEGORIES = 255
MAX_CLASSES = 1_000
MAX_NAME_CHARS = 128
MAX_DATASET_NAME_CHARS = 64
MAX_CATEGORY_CHARS = 256
MAX_PARTITIONS = 6
MAX_HASH_CELLS = 1_024
MAX_UPLOAD_CELLS = 4_096
"""Uploads to a dataset that is cut by them: every box lists the uploads in it."""
MAX_COMPOSITION_WORK = 2**23
"""Additions that the exact maximum over joint cells may take; beyond it a sound upper bound is given."""
MAX_PUBLIC_SIZE = 10**12
MAX_ROWS_PER_UNIT = 1_000_000

MAX_JSON_BODY_BYTES = 16 * 1024 * 1024
MAX_JSON_DEPTH = 64
"""Arrays and objects inside one another."""
MAX_PREDICTION_BODY_BYTES = 16 * 1024 * 1024
MAX_PREDICTION_ROWS = 10_000
MAX_REPORTED_PROBLEMS = 100
"""A refused prediction names this many broken cells at most, so that the answer stays smaller than the request."""
MAX_UPLOAD_BODY_BYTES = 4 * 1024**3
MAX_UPLOAD_CSV_BYTES = 8 * 1024**3
"""Upper bound on a decompressed upload: a gzip bomb ends here."""
MAX_CSV_LINE_BYTES = 1024 * 1024
MAX_ROWS_PER_DATASET = 2**31 - 1

MAX_STEPS = 2**63 - 1
"""Of every amount: they are stored in 64 bits."""
MAX_CAP_EPSILON = 10**9
"""Caps are stored as 64-bit nano-ε."""
MAX_CAP_EPSILON_WITH_DELTA = 10**6
"""Caps are stored as 64-bit steps of 10⁻¹² ρ or μ², and no ε up to this one fills them."""
MAX_IDEMPOTENCY_KEY_CHARS = 200
MAX_KEY_NAME_CHARS = 128
MAX_EVENT_PARTS = 200
"""Nodes of the event tree of a mechanism that runs elsewhere."""
MAX_EVENT_COUNT = 10**12
MAX_EVENT_SCALE = 10**60
MAX_SENTENCE_CHARS = 500
"""A reason or a description in the ledger."""
MAX_REQUESTS_IN_FLIGHT = 1_024
MAX_WAITING_UPLOADS = 4
"""Uploads of one process that wait for another upload to their dataset: each holds one of its forty threads."""
MAX_FOLLOWERS = 256
"""Event streams of one process: fewer than its requests, so that followers cannot lock others out."""

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500

MAX_TREES = 1_024
MAX_DEPTH = 12
MAX_TREE_LEAF_CELLS = 2**26
"""Trees × leaves × classes of one model: bounds memory, artifact and prediction by public numbers."""

MAX_CONFUSION_CLASSES = 100
MAX_SCORE_BINS = 256
MAX_COMPARED_MODELS = 64
"""Models among which one evaluation chooses the best."""

MAX_QUEUE_S = 86_400
LEASE_TTL_S = 30
CHILD_TIMEOUT_S = 24 * 3_600
CHILD_EXIT_S = 30

MAX_WORKERS = 256
"""Worker processes of one `serve`."""
