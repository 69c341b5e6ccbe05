"""Lists every fuzzing target."""

from tests.support.fuzzing import (
    columns,
    connections,
    evidence,
    forms,
    models,
    requests,
    tables,
    tensors,
    uploads,
)
from tests.support.fuzzing.target import Target

TARGETS = {
    target.name: target
    for target in (
        Target("json", requests.seeds_of_json, requests.run_json),
        Target("amounts", requests.seeds_of_amounts, requests.run_amount),
        Target("bodies", requests.seeds_of_bodies, requests.run_body, n_mutations=500),
        Target("events", requests.seeds_of_events, requests.run_event),
        Target("scopes", requests.seeds_of_scopes, requests.run_scope),
        Target("predictions", requests.seeds_of_predictions, requests.run_prediction),
        Target("tensors", tensors.seeds, tensors.run),
        Target("tables", tables.seeds, tables.run, n_mutations=500),
        Target("connections", connections.seeds, connections.run, n_mutations=500),
        Target("uploads", uploads.seeds, uploads.run, n_mutations=200),
        Target("file-forms", forms.seeds, forms.run, n_mutations=300),
        Target("columns", columns.seeds, columns.run),
        Target("sealed-files", uploads.seeds_of_sealed_files, uploads.run_sealed_file),
        Target("artifacts", models.seeds, models.run, n_mutations=500),
        Target(
            "artifact-parts", models.seeds_in_parts, models.run_parts, n_mutations=500
        ),
        Target(
            "dataset-export",
            evidence.seeds_of_dataset,
            evidence.run_dataset,
            n_mutations=150,
        ),
        Target(
            "rewritten-export",
            evidence.seeds_of_dataset,
            evidence.run_rewritten,
            n_mutations=150,
        ),
        Target(
            "population-export",
            evidence.seeds_of_people,
            evidence.run_people,
            n_mutations=150,
        ),
        Target(
            "control-export", evidence.seeds_of_acts, evidence.run_acts, n_mutations=300
        ),
        Target("proofs", evidence.seeds_of_proofs, evidence.run_proof),
        Target("notes", evidence.seeds_of_notes, evidence.run_note),
        Target("public-keys", evidence.seeds_of_keys, evidence.run_key),
    )
}
