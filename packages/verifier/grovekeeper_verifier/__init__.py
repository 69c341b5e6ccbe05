"""Verifies ledger exports without any code of the service: ``python -m
grovekeeper_verifier FILE``.

It shares no code with the service and uses the standard library alone (checkpoints need
``cryptography`` too). An auditor can copy this folder, read it in an afternoon and run
it years later. It relies on the published form of an export: JSON Lines, a header line,
then every entry in order, each with the hash of the entry before it.

Reading order:

* every export: ``canonical_json``, ``amounts``, ``json_fields``, ``chain``,
  ``export_lines``
* an entry of a dataset and its price: ``dataset_export``, ``events``, ``conversions``,
  ``prices``
* the account of a dataset: ``joint_cells``, ``joint_bounds``, ``largest_load``,
  ``dataset_replay``
* a population: ``population_export``, ``population_replay``; compared with its members:
  ``member_comparison``
* signatures: ``checkpoints``, ``ed25519``, ``merkle_tree``, ``proofs``
* output: ``result_text``, ``main``
"""
