"""Which model goes where: permutations and the planner."""
