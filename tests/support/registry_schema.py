"""The closed form of a record of the public registry of deployments, as a JSON schema.

Written from the registry's records and template of September 2026: the same names,
choices and required members.
"""

from typing import Any

_TEXT = {"type": "string", "minLength": 1}


def _closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


def _choice(*values: object) -> dict[str, Any]:
    return {"enum": list(values)}


_CURATOR = _closed({"data_curator_name": _TEXT, "data_curator_type": _TEXT})
_PARAMETERS = {
    name: {"type": "number", "minimum": 0} for name in ("epsilon", "delta", "rho")
}
RECORD = _closed(
    {
        "url_slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
        "status": _choice("Draft", "Published"),
        "tier": _choice(1, 2, 3),
        "deployment": _closed(
            {
                "basic": _closed(
                    {
                        "name": _TEXT,
                        "data_curators": {
                            "type": "array",
                            "items": _CURATOR,
                            "minItems": 1,
                        },
                        "description": _TEXT,
                        "intended_use": _TEXT,
                        "data_product_type": _choice(
                            "Summary statistics",
                            "Machine learning model",
                            "Dataset",
                            "Synthetic data",
                        ),
                        "data_product_region": _TEXT,
                        "data_product_sector": _TEXT,
                        "publication_date": {"type": "string", "format": "date"},
                    },
                    "data_product_sector",
                ),
                "dp_variant": _closed(
                    {
                        "variant_name": _choice(
                            "Pure DP",
                            "Approximate DP",
                            "Zero-concentrated DP",
                            "Renyi DP",
                            "Custom",
                        ),
                        "data_domain": _TEXT,
                        "unprotected_quantities": _TEXT,
                    }
                ),
                "privacy_loss": _closed(
                    {
                        "privacy_unit": _TEXT,
                        "privacy_unit_details": _TEXT,
                        "privacy_parameters": _closed(_PARAMETERS, "delta", "rho"),
                        "privacy_parameters_details": _TEXT,
                    }
                ),
                "deployment_model": _closed(
                    {
                        "model_name": _choice("Central", "Local", "Shuffle"),
                        "model_name_details": _TEXT,
                        "actors": _TEXT,
                        "release_type": _choice("One release", "Many releases"),
                        "release_type_details": _TEXT,
                        "data_source_type": _choice("Static", "Dynamic"),
                        "data_source_type_details": _TEXT,
                        "access_type": _choice("Interactive", "Non-interactive"),
                        "access_type_details": _TEXT,
                    }
                ),
                "accounting": _closed({"composition": _TEXT, "post_processing": _TEXT}),
                "implementation": _closed(
                    {
                        "preprocessing_and_hyperparameter_tuning": _TEXT,
                        "mechanisms": _TEXT,
                        "justification": _TEXT,
                    },
                    "justification",
                ),
                "administrative": _closed(
                    {
                        "registry_authors": {
                            "type": "array",
                            "items": _TEXT,
                            "minItems": 1,
                        },
                        "sources": _TEXT,
                        "notes": _TEXT,
                    },
                    "sources",
                    "notes",
                ),
            }
        ),
    }
)
