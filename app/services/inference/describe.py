"""Describes the server and its models in the words of the Open Inference Protocol."""

from app.forests.data.schema import Feature, Schema
from app.wire.inference import LABEL, PROBABILITIES, ModelMetadata, ServerMetadata, TensorMetadata

_ANY_NUMBER = -1


def server(version: str) -> ServerMetadata:
    """The server: its name, its version, and the extension that it supports."""
    return ServerMetadata(name="grovekeeper", version=version, extensions=["binary_tensor_data"])


def model(name: str, model_id: str, schema: Schema) -> ModelMetadata:
    """The tensors of a model: one per feature, the label, and the probabilities in the order of ``classes``."""
    classes = list(schema.label.classes)
    return ModelMetadata(
        name=name,
        versions=[model_id],
        platform="grovekeeper",
        inputs=[
            TensorMetadata(name=feature.name, datatype=_datatype(feature), shape=[_ANY_NUMBER])
            for feature in schema.features
        ],
        outputs=[
            TensorMetadata(name=LABEL, datatype="BYTES", shape=[_ANY_NUMBER]),
            TensorMetadata(name=PROBABILITIES, datatype="FP64", shape=[_ANY_NUMBER, len(classes)]),
        ],
        classes=classes,
    )


def _datatype(feature: Feature) -> str:
    """The datatype that can carry every value of a column, also a missing one."""
    if feature.is_categorical:
        return "BYTES"
    return "FP64" if feature.missing or feature.type == "numeric" else "INT64"
