"""Defines every limit of the service; those of declarations, forests and composition:
``grovekeeper_forests.limits``.

A limit is a public fact, so an error may state it. A long comment stands above its
limit.
"""

from grovekeeper_forests.limits import MAX_FEATURES

# Declarations

MAX_DATASET_NAME_CHARS = 64  # Characters of a dataset's or a population's name
MAX_ALIAS_CHARS = 32  # Characters of an alias of a model
MAX_UPLOAD_CELLS = 4_096  # Uploads to a dataset with a partition by upload
MAX_PUBLIC_SIZE = 10**12  # Declared number of rows, of a dataset or of a cell
# Aliases of one dataset that name a model. Their moves stay for ever; a key makes one
# in ``REVOCATION_S``, for which each move holds the key's one thread of an API process.
MAX_ALIASES = 100
# Rows of an upload whose units are compared for values that differ by leading zeros or
# case: 16 bytes of memory each.
MAX_COMPARED_UNIT_ROWS = 2**22
MAX_ROWS_PER_UNIT = 1_000_000  # Rows kept for each unit

# Requests

# Bytes of a JSON body, except declarations, erasures and prediction requests
MAX_JSON_BODY_BYTES = 256 * 1024
# Values and names of members in a JSON body, with the same exceptions
MAX_JSON_BODY_NODES = 20_000
MAX_DECLARATION_BODY_BYTES = 16 * 1024 * 1024  # Bytes of a declaration
# Values and names of members in a declaration: 2,000 features of 255 categories have
# 540,000.
MAX_DECLARATION_BODY_NODES = 600_000
# Bytes of a request to erase a unit: its name can fill a line of an upload, and JSON
# can escape every byte of it.
MAX_ERASURE_BODY_BYTES = 8 * 1024 * 1024
# Seconds for which the task of a prediction waits for the body: most clients send it
# just after the head, and a small request whose body is there needs no task.
BODY_AFTER_HEAD_S = 0.05
# Seconds that a request waits for the next part of its body, and in all for a body
# without content
BODY_WAIT_S = 30
# Bytes for which a request waits one more second: the least mean rate of a long body
# over the window below.
MIN_BODY_BYTES_PER_S = 16 * 1024
BODY_WINDOW_S = 120  # Seconds of waiting that a body can save up by arriving fast
# Bytes of the form of a sign-in, which arrives without a valid key
MAX_SIGN_IN_BODY_BYTES = 8 * 1024
SIGN_IN_BODY_S = 5  # Seconds in which the form of a sign-in has to arrive
# Seconds that a request waits for its body, beyond which it reads its key again at the
# end
KEY_AGE_S = 2
# Seconds that a request waits for its body before it reads its key again in the middle
SLOW_KEY_AGE_S = 30
# Fields of a form of the dashboard: a prediction has one for each feature
MAX_FORM_FIELDS = 4_096
# Bytes of the headers, or of a field, before the file of a form
MAX_FORM_PART_BYTES = 4_096
MAX_FIELDS_BEFORE_FILE = 16  # Fields before the file of a form, which has eight
# Columns, and partitions, that the form of a declaration takes; the API takes more
MAX_FORM_COLUMNS = 200
# Charges in the plot of a dataset; earlier charges are in the pages of its ledger
MAX_SHOWN_CHARGES = 200
PACE_DAYS = 30  # Days whose charges say when a budget ends
MIN_PACE_DAYS = 7  # Days since the first charge before they say so
MAX_PACE_DAYS = 3650  # Days ahead for which they say so
MAX_PACE_ENTRIES = 1000  # Newest entries of an account among which they are found
MAX_SPENT_GROUPS = 500  # Groups in which an answer adds up the charges of an account
MAX_SHOWN_SAME_COLUMNS = 5  # Datasets of the same columns that a warning names
MAX_SHOWN_PAIRS = 256  # Pairs of cells of two partitions that a page shows as a grid
MAX_ATTENTION = 20  # Items of each list of what needs a caller
FAILED_DAYS = 7  # Days for which a job that failed is listed there
KEY_ENDS_SOON_DAYS = 14  # Days before the end of a key from which it is listed there
# Keys of one name, all with entries in a ledger, that a search for the name lists
MAX_KEYS_OF_A_NAME = 100
# Entries that are read for one page of a search for the entries of a cell
MAX_SEARCHED_ENTRIES = 2_000
# Members of a population whose loads are added up beside every entry of a page
MAX_SUMMED_MEMBERS = 100
# Members of a population from which one request erases a person
MAX_ERASED_MEMBERS = 64
# Entries of a ledger that an auditor's report verifies; for a longer ledger it names
# the command.
MAX_VERIFIED_ENTRIES = 10_000
MAX_DUMMY_ROWS = 1_000  # Dummy rows that a page draws; the command line draws more
MAX_JOBS_BEFORE = 100  # Jobs that are counted before a queued job; then "more than"
MAX_VERIFICATIONS = 20  # Verifications that are shown of an account
MAX_CHECKPOINT_CHARS = 4_096  # Characters of a checkpoint that an auditor states
MAX_VERIFICATION_S = 60  # Seconds that the verifier may take for an auditor's report
# Seconds after which a person who signed in to the dashboard has to sign in again
SIGN_IN_S = 12 * 60 * 60
MAX_JSON_DEPTH = 64  # Nesting of arrays and objects in a JSON body
MAX_JSON_MEMBERS = 64  # Members of one object in a JSON body
MAX_PREDICTION_BODY_BYTES = 16 * 1024 * 1024  # Bytes of a prediction request
# Values and names of members in a prediction request, for the widest models; see
# ``services.predict.max_nodes``.
MAX_PREDICTION_BODY_NODES = 2_100_000
# Bytes of a form with a file of rows to predict, and of the file when it is unpacked
MAX_PREDICTION_FILE_BYTES = 1024 * 1024
# Messages of a prediction request in Arrow: the schema, dictionaries and record
# batches.
MAX_PREDICTION_MESSAGES = 4_096
# Levels of columns in columns of a prediction request in Arrow
MAX_PREDICTION_LEVELS = 64
# Record batches times columns of a prediction request in Arrow
MAX_PREDICTION_ARRAYS = 65_536
# Bytes of a prediction request that is answered on the event loop, without a thread,
# once its model is loaded.
MAX_BYTES_AT_ONCE = 4_096
# Rows times features, or classes if they are more, of the model in such a request
MAX_CELLS_AT_ONCE = 256
# Seconds after its commit at which a revocation is answered. A process uses cached
# authority for a shorter time.
REVOCATION_S = 1.0
# Seconds between two searches of an API process for datasets and a newest model to
# prepare for.
PREPARATION_INTERVAL_S = 5.0
# Callers, and models by caller, in the cache of one process; beyond them the cache
# begins anew.
MAX_CACHED_AUTHORITIES = 10_000
# Characters of an id or a name by which a request refers to something that exists
MAX_REFERENCE_CHARS = 128
MAX_IDEMPOTENCY_KEY_CHARS = 200  # Characters of an idempotency key
MAX_KEY_NAME_CHARS = 128  # Characters of an access key's name
MAX_JOB_NAME_CHARS = 128  # Characters of a job's name
# Characters of a scope in a form, or of the models that a form has chosen; in an
# address ``MAX_QUERY_BYTES`` are fewer.
MAX_SCOPE_CHARS = 65_536
# Characters of a cell, or of the names of two partitions, in an address or a form
MAX_CELL_CHARS = 4_096
MAX_FIELD_CHARS = 64  # Characters of a short field of a form: an amount, a choice
# Characters of the path below which a reverse proxy serves the service
MAX_PATH_PREFIX_CHARS = 200
MAX_RETURN_CHARS = 2_000  # Characters of the page that a sign-in returns to
# Seconds between two times at which a process writes which keys were used
LAST_USES_INTERVAL_S = 300
MAX_KEY_LIFETIME_DAYS = 3_660  # Days until an access key expires, if it expires at all
MAX_SENTENCE_CHARS = 500  # Characters of a reason or a description in the ledger
DEFAULT_PAGE_SIZE = 50  # Items of a list when the request names no ``limit``
MAX_PAGE_SIZE = 500  # Items of a list

# Bytes of the declarations, scopes or releases on a page as JSON, unless one alone has
# more.
MAX_PAGE_BYTES = 8 * 1024 * 1024

# Tokens of an identity provider

MAX_TOKEN_CHARS = 8_192  # Characters of a token
# Largest setting of the seconds that a token lives: nobody can take a token back
MAX_TOKEN_LIFETIME_S = 24 * 3_600
TOKEN_LEEWAY_S = 30  # Seconds by which the clock of the provider may be ahead
# Characters of the subject of a token, as OpenID Connect Core limits them
MAX_SUBJECT_CHARS = 255
MIN_RSA_BITS = 2_048  # Bits of an RSA key that signs tokens
MAX_KEY_SET_BYTES = 256 * 1024  # Bytes of the provider's keys
KEY_SET_WAIT_S = 5.0  # Seconds that the provider may take to send its keys
# Seconds for which the provider's keys are believed; then they are read again
KEY_SET_AGE_S = 600
# Seconds between two attempts to read the provider's keys, whatever tokens arrive
KEY_SET_PAUSE_S = 10

# Uploads

MAX_UPLOAD_BODY_BYTES = 4 * 1024**3  # Bytes of an upload as sent
# Bytes of an upload after decompression; bounds a gzip bomb
MAX_UPLOAD_CSV_BYTES = 8 * 1024**3
# Bytes that one byte of a gzip upload may unpack to. Tables unpack to 3 to 30 times;
# deflate allows a thousand.
MAX_GZIP_RATIO = 100
# Bytes that any gzip upload may unpack to, whatever its ratio
FREE_UNPACKED_BYTES = 16 * 1024 * 1024
# Bytes of cells that one byte of Parquet or Arrow may become: a column of few
# categories takes some bits per cell.
MAX_COLUMNAR_RATIO = 1_000
# Row groups of an upload of Parquet, and record batches of one of Arrow
MAX_ROW_GROUPS = 32_768
# Bytes of the footer of an upload of Parquet, which is read into memory whole.
MAX_PARQUET_METADATA_BYTES = 16 * 1024 * 1024
# Columns of an upload of Parquet or Arrow; more are refused before their names are
# compared.
MAX_UPLOAD_COLUMNS = 2 * MAX_FEATURES
# Memory of the process that decodes an upload of Parquet or Arrow: a page, a record
# batch and its dictionaries.
DECODER_MEMORY_BYTES = 1024**3
# Processes of one machine that decode uploads of Parquet or Arrow at the same time. A key
# has one in an API process, so two keys with long uploads leave one to others.
MAX_DECODERS = 3
DECODER_CPU_S = 1_200  # Seconds of CPU time of the process that decodes an upload
# Seconds after which a decoding process that sends nothing, or takes nothing, counts as
# stuck
DECODER_SILENCE_S = 600
DECODER_WAIT_S = 3_600  # Seconds that the service waits for a decoding process in all
# Rows of an upload that are in memory at a time, besides those of a row group
MAX_BLOCK_ROWS = 2**17
# Bytes of the cells of such rows, as the decoding process counts them: what the service
# builds takes a few times more.
MAX_BLOCK_BYTES = 4 * 1024 * 1024
# Of the cells of a column of an upload, the share that may be undeclared or out of
# bounds unless the owner accepts more.
MAX_UNREAD_PERCENT = 5
MAX_MISSING_CHARS = 1_000  # Characters of the option missing of an upload
MAX_CSV_LINE_BYTES = 1024 * 1024  # Bytes of one line of an upload
# Bytes on the disk of all uploads to a dataset together, those that still run included.
MAX_DATASET_BYTES = 64 * 1024**3

# Amounts and events

MAX_STEPS = 2**63 - 1  # Steps of any amount: amounts are stored as 64-bit integers
MAX_CAP_EPSILON = 10**9  # Cap of a ``pure`` account as ε: stored in steps of 10⁻⁹
# Cells that the entries of an account list for its distinct scopes with an amount; a
# range of uploads lists none. It bounds what a process reads of an account when it
# starts, and what every stated state states under the lock. Those of one key are at
# most as many as it leaves to others.
MAX_LISTED_CELLS = 2**16
# Open reservations of an account; beyond them, submissions are answered 429. A stated
# state names each.
MAX_OPEN_RESERVATIONS = 2**16
# Uploads from which an entry states a range of uploads as a number; people read fewer
# as a list
MIN_RANGE_UPLOADS = 16

# Concurrency of one process

# Requests with keys of one API process at a time; further requests, except for
# administration, are answered 429.
MAX_REQUESTS_IN_FLIGHT = 1_024
# Requests of one key at a time in one API process, event streams among them; further
# requests are answered 429.
MAX_REQUESTS_PER_KEY = 128
MAX_FOLLOWERS_PER_KEY = 32  # Event streams of one key in one API process
# Threads of one kind of work that the requests of one key use at a time; its further
# requests wait for their turn.
MAX_THREADS_PER_KEY = 1
# Bytes of a body beyond which the rest waits for its turn
LARGE_BODY_BYTES = 256 * 1024
# Large bodies of one key in the memory of one API process: Python builds their values
# while no other thread runs.
MAX_LARGE_BODIES_PER_KEY = 1
# Large bodies in the memory of one API process, except for uploads, which go to files
MAX_LARGE_BODIES = 64
# Connections of one API process; beyond them, the oldest connection without a valid key
# is closed.
MAX_CONNECTIONS = 2_048
# Connections of one API process that sent no valid key yet; beyond them, the oldest is
# closed.
MAX_CONNECTIONS_WITHOUT_KEY = 1_024
# Connections of one API process that count as those of one key; further ones count as
# connections without a key.
MAX_CONNECTIONS_PER_KEY = 256
# Seconds in a round of the event loop in which requests begin that are answered at
# once; or one other request begins.
ROUND_S = 0.002
# Rounds with a new connection, of which one begins a request without a known key
MAX_ROUNDS_OF_CONNECTIONS = 64
# Bytes of the request line and the headers of a request
MAX_REQUEST_HEAD_BYTES = 64 * 1024
MAX_REQUEST_FIELDS = 128  # Header fields of a request
# Bytes of a header field: a token, or the cookies of all services of a domain
MAX_REQUEST_FIELD_BYTES = 16 * 1024
MAX_PATH_BYTES = 4 * 1024  # Bytes of the path of a request
# Requests that wait on a connection for the answer to the one before them
MAX_PIPELINED_REQUESTS = 16
# Bytes and parameters of a query string: a page names each of 1,024 chosen cells.
MAX_QUERY_BYTES = 40 * 1024
MAX_QUERY_FIELDS = 1_100
# Bytes and parameters of a query string where nobody needs a key: sign-in has the page
# that follows it.
MAX_OPEN_QUERY_BYTES = 8 * 1024
MAX_OPEN_QUERY_FIELDS = 16
REQUEST_HEAD_S = 30  # Seconds that a client may take for the head of a request
# Seconds after which a client that takes up nothing of an answer is cut off, on Linux
ANSWER_WAIT_S = 60
# Bytes of an answer from which it is compressed: less fits into two packets
MIN_COMPRESSED_BYTES = 2 * 1024
# Bytes of an answer beyond which its request lasts until the client has read it
LARGE_ANSWER_BYTES = 64 * 1024
# Bytes of large answers in the memory of one API process that clients of one key have
# not read; with more, work of the key is answered 429.
MAX_UNREAD_BYTES_PER_KEY = 32 * 1024 * 1024
# Threads of one API process that check keys, and grants before an upload
MAX_AUTHENTICATIONS_AT_ONCE = 4
# Threads of one API process that check tokens, which may wait for the identity provider
MAX_TOKENS_AT_ONCE = 2
# Threads of one API process that change keys and grants, and show metrics
MAX_ADMINISTRATION_AT_ONCE = 4
MAX_READS_AT_ONCE = 8  # Threads of one API process that answer requests without a body
# Threads of one API process that parse bodies and answer requests that change something
MAX_WRITES_AT_ONCE = 8
# Threads of one API process that submit jobs; with those of administration, reads and
# writes at most the framework's 40 threads.
MAX_SUBMISSIONS_AT_ONCE = 16
MAX_UPLOADS_AT_ONCE = 8  # Threads of one API process that read uploads
MAX_EXPORTS_AT_ONCE = 4  # Threads of one API process that write exports and artifacts
# Threads of one API process that make ONNX files, which takes several times the memory
# of the file.
MAX_CONVERSIONS_AT_ONCE = 1
MAX_PREDICTIONS_AT_ONCE = 4  # Threads of one API process that predict
READINESS_WAIT_S = 5  # Seconds that ``/readyz`` waits for the database
# Free bytes on the disk of the home below which an API process is not ready, and no job
# is charged.
MIN_FREE_DISK_BYTES = 64 * 1024 * 1024
# Free bytes on the disk of the home below which no further part of an upload is taken
# and no codes of rows are kept, so that jobs still find theirs.
MIN_FREE_UPLOAD_BYTES = 256 * 1024 * 1024
# Seconds after which a request that met a full disk may be sent again
DISK_RETRY_S = 60
# Uploads of one key in one API process, from their first byte to their answer
MAX_UNFINISHED_UPLOADS_PER_KEY = 8
# Uploads of one API process that wait for another upload to their dataset; fewer than
# the threads for uploads.
MAX_WAITING_UPLOADS = 4
# Bytes that a worker writes to each place of a job's output before the charge
JOB_PROBE_BYTES = 1024 * 1024
# Seconds in which the child of a job has to load its code, which a new machine compiles
CHILD_LOAD_S = 900
# Seconds in which a worker has to see a process of the Dask cluster before the charge
# of a job
CLUSTER_LOOK_S = 60
# Seconds between two looks of a process for jobs whose workers died
SWEEP_INTERVAL_S = 2.0
# Seconds between two attempts of a worker that could not load the code of jobs
LOAD_RETRY_S = 30
MAX_LOGGED_FRAMES = 20  # Frames of a traceback in one line of the log
# Event streams of one API process: fewer than its requests, so that streams leave room
# for other requests.
MAX_FOLLOWERS = 256
# Seconds after which a stream of events that has none sends a comment
EVENT_SILENCE_S = 15
MAX_WORKERS = 256  # Worker processes of one ``serve``

# Database

MAX_DATABASE_CONNECTIONS = 32  # Connections of one process to its database
# Pages of a SQLite file that one connection keeps in memory; SQLite's default of 2 MiB
# adds up to 64 MiB.
SQLITE_CACHE_KIB = 256
# Seconds that a thread waits for a free connection of its process
DATABASE_POOL_WAIT_S = 30
DATABASE_CONNECT_S = 10  # Seconds that a connection to PostgreSQL may take to open
DATABASE_LOCK_WAIT_S = 10  # Seconds that a statement waits for a lock of PostgreSQL
DATABASE_STATEMENT_S = 30  # Seconds that a statement of PostgreSQL may take
# Seconds that a transaction of PostgreSQL may wait for the next statement of its
# process
DATABASE_IDLE_S = 60
# Seconds of silence before a connection to PostgreSQL is probed, and before
# unacknowledged data counts as lost.
DATABASE_SILENCE_S = 30
# Seconds that a writer waits for the other writers of a SQLite file: threads of its
# process, then ``busy_timeout``.
DATABASE_WRITE_WAIT_S = 30.0

# Webhooks

MAX_WEBHOOKS = 10  # Webhooks of a dataset
MAX_WEBHOOK_URL_CHARS = 2_048  # Characters of the address of a webhook
# Deliveries of a webhook that wait; further events are dropped. A kind of event takes
# at most as many places as it leaves to other kinds, and a key at most as many places
# of refusals as it leaves to other keys.
MAX_WAITING_DELIVERIES = 1_000
# Last deliveries of a webhook that stay shown, each with its last attempt
MAX_RECENT_DELIVERIES = 20
# Seconds after which a delivery that no receiver accepted is dropped
MAX_DELIVERY_AGE_S = 86_400
# Seconds between two searches of an API process for deliveries that are due
WEBHOOK_INTERVAL_S = 1.0
# Seconds that the name of a receiver may take to resolve, and a receiver to accept a
# connection and to answer.
WEBHOOK_WAIT_S = 10.0
# Seconds for which a process holds a webhook while it delivers; longer than all waits
# together
WEBHOOK_HOLD_S = 60
# Seconds from a failed delivery to the next attempt; doubled by each further failure
WEBHOOK_RETRY_S = 5
MAX_WEBHOOK_RETRY_S = 3_600  # Largest number of seconds between two attempts
# Seconds for which deliveries carry the signature of an earlier secret, too, by default
WEBHOOK_OVERLAP_S = 86_400
MAX_WEBHOOK_OVERLAP_S = 604_800  # Largest number of these seconds
# Threads of one API process that wait for receivers, each for another owner.
MAX_DELIVERIES_AT_ONCE = 4

# Metrics

# Seconds between two notes of a worker that it lives, whether it runs a job or not
WORKER_NOTE_INTERVAL_S = 10.0
# Seconds after its last note from which on metrics do not count a worker
WORKER_SEEN_S = 30
# Seconds for which an API process shows the same queue and the same accounts near their
# caps in its metrics.
METRICS_AGE_S = 30.0

# Erasures

# Seconds between two searches of an API process for datasets whose date of erasure has
# come
ERASURE_INTERVAL_S = 60.0

# Models and evaluations

# Bytes of the copies of stored objects on the disk of a machine, beyond copies that
# were used within the hour.
MAX_CACHED_OBJECT_BYTES = 16 * 1024**3
# Seconds since its last use for which a copy of a stored object stays, because a
# running job may still open it.
CACHED_OBJECT_STAYS_S = 3_600
# Seconds between two searches of an API process for copies of objects that were deleted
# or replaced.
COPIES_INTERVAL_S = 600.0
# Seconds within which a request to an object store is repeated
OBJECT_STORE_WAIT_S = 20
# Attempts of a Dask worker to read from an object store, whose pauses take longer than
# that
PAID_READ_ATTEMPTS = 8
# Bytes of loaded artifacts beyond which a process loads no model before it is asked
MAX_AHEAD_BYTES = 64 * 1024 * 1024
# Bytes of memory for the artifacts that one process keeps loaded
MAX_CACHED_ARTIFACT_BYTES = 512 * 1024 * 1024
# Bytes of memory for the states of accounts that one process keeps. An account larger
# than half counts as half of it.
MAX_KEPT_STATE_BYTES = 256 * 1024 * 1024
MAX_SCORE_BINS = 256  # Steps of the score in an AUROC
MAX_MODELS_SIDE_BY_SIDE = 8  # Models of one comparison
MAX_COMPARED_MODELS = 64  # Models among which one evaluation chooses the best

# Rules

MAX_QUOTAS = 100  # Quotas of a dataset
MAX_QUOTA_KEYS = 100  # Keys of a quota
MAX_PROPOSAL_S = 7 * 86_400  # Seconds in which a second owner may confirm looser rules
# Jobs of one key that wait for an approval; further submissions that need an approval
# are answered 429.
MAX_WAITING_JOBS_PER_KEY = 3
# Seconds that a job waits for an approval before it expires
MAX_APPROVAL_S = 7 * 86_400

# Jobs

# Waiting, queued and running jobs of one key; further submissions are answered 429.
# Requests at once may exceed it by their number.
MAX_UNFINISHED_JOBS_PER_KEY = 10_000
# Jobs of a deleted dataset that end in one transaction, which holds the locks of their
# accounts.
JOBS_ENDED_TOGETHER = 20
# Jobs of a deleted dataset that its deletion ends, and that each later sweep ends,
# before it does something else.
MAX_JOBS_ENDED_BY_A_SWEEP = 100
# Seconds after which a key with too many unfinished jobs is told to submit again
FULL_QUEUE_RETRY_S = 30
# The same for a key with too many jobs that wait for an approval: a person decides
APPROVAL_RETRY_S = 3_600
MAX_QUEUE_S = 86_400  # Seconds that a job waits in the queue before it expires
# Seconds after the last heartbeat at which a worker's lease ends; the default of a
# setting
LEASE_TTL_S = 30
# Seconds between two public times of an installation's private jobs
MAX_RELEASE_INTERVAL_S = 86_400
CHILD_TIMEOUT_S = 24 * 3_600  # Seconds that a job may run
# Seconds that a worker waits for the exit of a child process that closed its output
CHILD_EXIT_S = 30
