"""The three ways to name a hospital at the server, as three types.

`HospitalName` is what people and requests use. `Position` is the hospital's place among the members
of the current generation, sorted by name; routes and random streams use it. `NodeId` is Flower's
number for a connection and may change when a SuperNode registers again.
"""

from typing import NewType

HospitalName = NewType("HospitalName", str)
Position = NewType("Position", int)
NodeId = NewType("NodeId", int)


def cohort_node(position: Position) -> NodeId:
    """Return the node id under which the wrapped strategy sees a hospital.

    It does not depend on Flower's registration, so that a resumed run is configured alike.
    """
    return NodeId(position + 1)  # Flower has no node 0
