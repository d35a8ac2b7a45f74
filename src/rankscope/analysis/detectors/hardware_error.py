"""Finds errors of a device or its driver."""

from __future__ import annotations

from rankscope.analysis.failure_finding import FailureDetector


class HardwareError(FailureDetector):
    """The device or its driver reported an error; what the peers raised only follows.

    ## What it is
    Memory errors that could not be corrected, a device that has fallen off the bus, a driver that gives up.

    ## What shows it
    The first error of the run is one of the driver's own, which no program can cause by wrong arguments.

    ## What else looks like it
    An index out of range in a kernel (`device-side assert`) and an illegal memory access are faults of the program:
    `rank-exception`.

    ## What to do
    Look at the kernel's log of the node, and leave it out of the next job.
    """

    name = "hardware-error"
    title = "{who}: the device or its driver failed: {why}{where}"
    advice = (
        "read the kernel's log of that node (`dmesg`, Xid messages) and the device's error counters (`nvidia-smi -q`)",
        "take the node out and run the job on another one: if it comes again there, it is the program",
    )
