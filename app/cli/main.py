"""Assembles the commands of the operator and those of the client into the program
``grovekeeper``.

Commands import the server's modules (1 s of CPU) in their functions.
"""

from grovekeeper_client.cli.main import PANELS, Panels, program, run

_PANELS: Panels = {
    "Run": {
        "serve": (
            "app.cli.installation:serve",
            "Run the API and its workers on the embedded database, on one machine.",
        ),
        "demo": (
            "app.cli.demo:demo",
            "Show everything on a real dataset: a count with the error that was asked for, a quote, training, "
            "predictions, a refusal, the verified ledger.",
        ),
        "api": (
            "app.cli.installation:api",
            "Run the API alone; workers run as other processes.",
        ),
        "worker": (
            "app.cli.installation:worker",
            "Run one worker until a signal stops it.",
        ),
        "prepare": (
            "app.cli.installation:prepare",
            "Compile the program for this machine's processor, once, so that the first jobs and predictions do not "
            "wait.",
        ),
        "backup": (
            "app.cli.installation:backup",
            "Write database, rows and artifacts to a folder, while the service runs. Keys and heads are left out.",
        ),
        "restore": (
            "app.cli.installation:restore",
            "Read a backup into an empty database and home. Refuses a backup that lacks entries which heads prove.",
        ),
        "openapi": (
            "app.cli.installation:openapi",
            "Print the API's OpenAPI document.",
        ),
        "db": (
            "app.cli.installation:db",
            "Upgrade the database of the installation, and change its keys.",
        ),
        "dask": (
            "app.cli.installation:dask_commands",
            "Run the processes of a Dask cluster, which count the rows of large datasets.",
        ),
    },
    **PANELS,
    "Use": {
        **PANELS["Use"],
        # with a command that reads rows
        "datasets": (
            "app.cli.datasets:app",
            "Declare datasets, upload rows, grant roles.",
        ),
        # with a command that reads the database
        "keys": ("app.cli.keys:app", "Make, list, rotate and revoke keys."),
    },
}
"""A test compares the sentences with the commands' own."""

app = program(_PANELS, distribution="grovekeeper")


def main() -> None:
    """The ``grovekeeper`` command."""
    run(app)
