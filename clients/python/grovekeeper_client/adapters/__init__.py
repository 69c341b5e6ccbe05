"""Charges mechanisms of other libraries to the account of a dataset, before they read
a row, and registers models elsewhere with their receipts.

Each module needs the extra of its name: ``opendp``, ``dp_accounting``, ``opacus``,
``mlflow``. The protocol is in docs/guides/outside.md.
"""
