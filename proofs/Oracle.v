(** The checked functions as JSON, which to_python.py translates for the tests. *)

Require Import Model Scopes.
Require Extraction.

Extraction Language JSON.
Extraction "checked_ledger.json"
  load brute_largest largest opened boxes apply run admit opened_world together printed step history.
