"""The sandbox's AWS endpoint: Moto's server with a strict layer on top.

Moto answers every call at once and forgives everything. AWS does neither, and
a control plane proved only against Moto would lose machines and data on AWS.
The strict layer adds what AWS documents: client tokens, states that take time,
limits, throttling, late visibility, and faults on demand.

This package never talks to anything but its own clients, and keeps nothing
outside the one state file it is given.
"""

__version__ = "1.0.0"
