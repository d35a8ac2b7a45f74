"""How a trace divides its window: what the device did, and what of the communication computation hid."""

from __future__ import annotations

from rankscope.analysis.imported.device_traces.intervals import either, minus
from rankscope.analysis.imported.device_traces.work import Work
from rankscope.analysis.imported.examiner import Shares


def shares_of(work: Work, file: str, rank: int | None) -> Shares | None:
    """The four shares and the hidden part of the communication; None where the device did nothing.

    Computing, only communicating, only copying, nothing: they add up to the window, which goes from the first to the
    last activity of the device. HolisticTraceAnalysis counts the second and third as one, "non-compute".
    """
    if not work.window_ns:
        return None
    exposed = minus(work.communication, work.compute)
    copying = minus(work.memory, either(work.compute, work.communication))
    communication = work.communication.total
    return Shares(
        file=file,
        rank=rank,
        window_us=work.window_ns / 1e3,
        compute=work.compute.total / work.window_ns,
        exposed_communication=exposed.total / work.window_ns,
        exposed_memory=copying.total / work.window_ns,
        idle=work.idle.total / work.window_ns,
        hidden_communication=1 - exposed.total / communication if communication else None,
    )
