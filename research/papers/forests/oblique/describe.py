"""Describes ``rof-*``, ``mpsvm-*`` and ``hobraf``, forests with oblique splits."""

from __future__ import annotations

from research.papers.forests import parameters as shared
from research.papers.forests.contract import Reference

_NODE = (
    "Every tree sees a bootstrap sample, every node √D random columns as they are. A split leaves the smallest number "
    "of draws on both sides and lowers the Gini impurity; otherwise the node is a leaf. This follows the authors' "
    "code, which Bai et al. (2022) ran, with their smallest leaf of five."
)
_PLANES = (
    "The classes of a node form two groups: the two classes of the largest Bhattacharyya distance, and every other "
    "class with the nearer one. Two planes are each close to one group and far from the other. Of their two bisectors, "
    "the one with the lower impurity splits the node."
)


class _Forest(Reference):
    read_outs = shared.READ_OUTS
    parameters = (shared.N_ESTIMATORS, shared.MIN_SAMPLES_LEAF)


class _Rotated(_Forest):
    source = "Zhang and Suganthan, Random forests with ensemble of feature spaces, Pattern Recognition 47 (2014)"


class PrincipalComponents(_Rotated):
    """The best split of the principal components of random columns, computed at every
    node.
    """

    slug = "rof-pca"
    title = "Rotation forest with principal components"
    about = (
        f"{_NODE} The split is the best one on the principal components of the columns; on the columns themselves "
        "where a node has no more rows than columns."
    )


class LinearDiscriminants(_Rotated):
    """The best split of the linear discriminants of random columns, computed at every
    node.
    """

    slug = "rof-lda"
    title = "Rotation forest with linear discriminants"
    about = (
        f"{_NODE} The split is the best one on the discriminants, eigenvectors of the scatter between classes relative "
        "to the scatter within them; on the columns themselves where a node has no more rows than columns, or where "
        "the scatter within classes is singular."
    )


class _Proximal(_Forest):
    source = "Zhang and Suganthan, Oblique decision tree ensemble via MPSVM, IEEE Trans. Cybernetics 45 (2015)"


class TikhonovPlanes(_Proximal):
    """Bisectors of proximal planes, with 0.01 on the diagonal of a singular matrix."""

    slug = "mpsvm-t"
    title = "Oblique forest by proximal planes, Tikhonov regularisation"
    about = f"{_NODE} {_PLANES} Where a group's matrix is singular, 0.01 is added to its diagonal."


class AxisParallelPlanes(_Proximal):
    """Bisectors of proximal planes, and the best split of one column where a matrix is
    singular.
    """

    slug = "mpsvm-p"
    title = "Oblique forest by proximal planes, axis-parallel regularisation"
    about = f"{_NODE} {_PLANES} Where a group's matrix is singular, the node takes the best split of one column."


class NullSpacePlanes(_Proximal):
    """Bisectors of proximal planes, sought in the null space of a singular matrix."""

    slug = "mpsvm-n"
    title = "Oblique forest by proximal planes, null space regularisation"
    about = (
        f"{_NODE} {_PLANES} Where the first group's matrix is singular, the plane of a group is the direction of its "
        "matrix's null space along which the other group varies most; where only the second one is regular, its plane "
        "is the regular one. Where the first is regular, the authors' code takes both planes from one eigenproblem, "
        "and so does this version."
    )


class HeterogeneousPlanes(_Forest):
    """The best plane of five linear classifiers on the top partitions of a node's
    classes.
    """

    slug = "hobraf"
    title = "Heterogeneous oblique random forest"
    source = "Katuwal, Suganthan and Zhang, Heterogeneous oblique random forest, Pattern Recognition 99 (2020)"
    about = (
        "Every tree sees a bootstrap sample, every node √D random columns. A node fits classifiers to partitions "
        "of its classes in two groups. The plane with the lowest Gini impurity splits the node, if it leaves the "
        "smallest number of draws on both sides. The partitions are two hyperclasses, led by the classes of the "
        "largest Bhattacharyya distance, and the two one-vs-all partitions whose ideal split has the lowest impurity. "
        "The paper's abstract defines so much. Ours are the number of partitions, and the classifiers with "
        "scikit-learn's defaults on standardised columns: ridge regression, linear discriminant analysis, logistic "
        "regression, a linear support vector machine; and both planes of mpsvm-t."
    )
