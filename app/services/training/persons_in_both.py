"""What a job of two parts adds for a person who is in both, in a sentence."""

_TWO_DATASETS = (
    "The two datasets are declared to be about different people. For a person who is in both, the job adds the sum of "
    "the two prices, told in one unit, to what was released before; nothing checks it."
)
_ONE_DATASET = (
    "Both parts are of one dataset, on cells that no row is in both of. For its people the job adds the larger of the "
    "two prices to what was released before; its account shows both, cell by cell."
)


def persons_in_both(labelled_id: str, unlabelled_id: str) -> str:
    """The sentence for the two datasets of a job, by their ids."""
    return _ONE_DATASET if labelled_id == unlabelled_id else _TWO_DATASETS
