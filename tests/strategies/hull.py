"""How far a point is from a convex hull."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Points = NDArray[np.float64]


def distance_to_hull(part: Points, point: Points, unit: float) -> float:
    """The smallest t with |Σ μᵢsᵢ − point| ≤ t in each coordinate, μ ≥ 0, Σ μᵢ = 1."""
    offsets = ((part - point) / unit).T
    bound = np.full((len(point), 1), -1.0)
    solution = linprog(
        c=np.append(np.zeros(len(part)), 1.0),
        A_ub=np.block([[offsets, bound], [-offsets, bound]]),
        b_ub=np.zeros(2 * len(point)),
        A_eq=np.append(np.ones(len(part)), 0.0)[None, :],
        b_eq=[1.0],
        options={"primal_feasibility_tolerance": 1e-10},
    )
    assert solution.success, solution.message
    return float(solution.fun)
