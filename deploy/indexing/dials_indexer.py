#!/usr/bin/python3
"""Indexes images with DIALS, for [indexing] of Konkordia (docs/indexing.md).

    [indexing]
    program = ["/usr/bin/python3", "dials_indexer.py", "--cell", "58 58 151 90 90 90", "--space-group", "P41212"]
    answer_timeout_ms = 5000

Reads a line of JSON for each image, with its spots as scattering vectors. DIALS looks for basis vectors of their lattice:
by its real-space grid search where the cell is known, by one-dimensional Fourier transforms where it is not. The best
lattice is refined against the spots that it explains, and is the answer, a line of JSON. Needs the Python of an
installation of DIALS: /usr/bin/python3 with Debian's packages dials and python3-dials, or dials.python.
"""

import argparse
import json
import logging
import math
import sys

try:
    import numpy as np
    from cctbx import crystal
    from cctbx.sgtbx.bravais_types import bravais_lattice
    from dials.algorithms.indexing.basis_vector_search import FFT1D, RealSpaceGridSearch
    from dials.algorithms.indexing.basis_vector_search.combinations import candidate_orientation_matrices
    from dials.algorithms.indexing.basis_vector_search.optimise import optimise_basis_vectors
    from dials.algorithms.indexing.symmetry import find_matching_symmetry
    from scitbx import matrix
    from scitbx.array_family import flex
except ImportError as error:
    sys.exit(f"dials_indexer: {error}: run it with the Python of an installation of DIALS")

# A spot belongs to a lattice if none of its three indices is further from a whole number: 2.7 % of random points do.
TOLERANCE = 0.15
# With and without a known cell. A free cell has nine numbers to fit: some lattice may explain 14 random points.
SPOTS_MIN = {True: 10, False: 20}
# Basis vectors that are looked at, and combinations of three of them.
VECTORS, COMBINATIONS = 30, 500
# Rounds of refinement.
ROUNDS = 5
# How far a lattice may be from the cell that is looked for.
LENGTHS, ANGLES_DEG = 0.05, 3.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--cell", help="a b c alpha beta gamma: only this lattice is looked for")
    parser.add_argument("--space-group", default="P1", help="with --cell: its space group; the cell of the answer is in the reference setting")
    parser.add_argument("--max-cell", type=float, default=200.0, help="without --cell: longest edge, angstrom [default: 200]")
    parser.add_argument("--part-min", type=float, default=0.5, help="part of the spots that a lattice must explain [default: 0.5]")
    parser.add_argument("--spots-min", type=int, help="spots that a lattice must explain [default: 10 with --cell, 20 without]")
    asked = parser.parse_args()
    asked.spots_min = asked.spots_min or SPOTS_MIN[bool(asked.cell)]
    asked.symmetry = None
    if asked.cell:
        try:
            cell = [float(number) for number in asked.cell.replace(",", " ").split()]
            symmetry = crystal.symmetry(unit_cell=cell, space_group_symbol=asked.space_group)
        except (AssertionError, RuntimeError, ValueError) as error:
            parser.error(f"--cell '{asked.cell}' --space-group '{asked.space_group}': {error}")
        asked.symmetry = symmetry.as_reference_setting().best_cell()
    return asked


class Search:
    """Looks for lattices in points of reciprocal space."""

    def __init__(self, asked):
        self.asked, self.niggli, self.bravais = asked, None, None
        if asked.symmetry:
            self.niggli = asked.symmetry.niggli_cell().unit_cell()
            self.bravais = str(bravais_lattice(group=asked.symmetry.space_group()))
            self.vectors = RealSpaceGridSearch(1.3 * max(self.niggli.parameters()[:3]), target_unit_cell=self.niggli)
        else:
            self.vectors = FFT1D(asked.max_cell)

    def candidates(self, points):
        """Lattices that may be there, reduced, as models of DIALS."""
        points = flex.vec3_double(points.tolist())
        vectors, _ = self.vectors.find_basis_vectors(points)
        vectors = [matrix.col(vector) for vector in optimise_basis_vectors(points, vectors[:VECTORS])]
        for model in candidate_orientation_matrices(vectors, COMBINATIONS):
            if self.niggli is None or model.get_unit_cell().is_similar_to(self.niggli, LENGTHS, ANGLES_DEG):
                yield model

    def best(self, points):
        """The lattice that explains most points, refined; None if there is none."""
        best, best_score = None, -math.inf
        for model in self.candidates(points):
            # Of lattices that explain about as much, the one with the smallest cell: the others have it in them.
            volume = model.get_unit_cell().volume()
            score = explained(model, points)[1].mean() - 0.1 * math.log2(volume)
            if score > best_score:
                best, best_score = model, score
        return best and refined(best, points)

    def in_setting(self, model):
        """The lattice in the setting of the symmetry that was asked for; None if it has not that symmetry."""
        if self.bravais is None:
            return model
        subgroup = find_matching_symmetry(model.get_unit_cell(), None, max_delta=5, target_bravais_str=self.bravais)
        return subgroup and model.change_basis(subgroup["cb_op_inp_best"])

    def lattice(self, points):
        """The lattice of an image in its setting; None if none explains enough points."""
        model = self.best(points)
        if model is None or explained(model, points)[1].sum() < max(self.asked.spots_min, self.asked.part_min * len(points)):
            return None
        return self.in_setting(model)

    def answer(self, request):
        """What is said of an image."""
        answer = {"id": request["id"], "is_indexed": False}
        points = np.array([spot[3:6] for spot in request["spots"]], float)
        if points.ndim != 2 or points.shape[1] != 3 or len(points) < self.asked.spots_min:
            return answer
        try:
            model = self.lattice(points)
        except Exception as error:  # noqa: BLE001  whatever DIALS raises about points that are no lattice
            print(f"image {request['id']}: {type(error).__name__}: {error}", file=sys.stderr)
            return answer
        if model is None:
            return answer
        reciprocal = np.array(model.get_A()).reshape(3, 3).T
        return answer | {"is_indexed": True, "cell": list(model.get_unit_cell().parameters()), "orientation_matrix": reciprocal.flatten().tolist()}


def explained(model, points):
    """The indices of all points, rounded, and which of them are nearly whole."""
    indices = points @ np.linalg.inv(np.array(model.get_A()).reshape(3, 3)).T
    whole = np.rint(indices)
    return whole, (np.abs(indices - whole) < TOLERANCE).all(axis=1) & whole.any(axis=1)


def refined(model, points):
    """Least squares of the reciprocal lattice against the points that it explains."""
    for _ in range(ROUNDS):
        whole, fits = explained(model, points)
        if np.linalg.matrix_rank(whole[fits]) < 3:
            break
        reciprocal = np.linalg.lstsq(whole[fits], points[fits], rcond=None)[0]
        model.set_A(reciprocal.T.flatten().tolist())
    return model


def main():
    logging.getLogger("dials").setLevel(logging.ERROR)
    search = Search(arguments())
    for line in sys.stdin:
        print(json.dumps(search.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
