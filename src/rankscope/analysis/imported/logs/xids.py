"""What the numbers mean with which NVIDIA's driver reports errors (its public table of Xid errors)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROGRAM, DEVICE, AFTER, NOTE = "program", "device", "after", "note"


@dataclass(frozen=True, slots=True)
class Xid:
    """`kind`: the program may have caused it, the device failed, it follows from another error, or it is a note."""

    meaning: str
    kind: str


XIDS: Final = {
    8: Xid("the GPU stopped processing", DEVICE),
    13: Xid("an exception in a kernel, mostly an access out of range", PROGRAM),
    31: Xid("a memory page fault of a kernel, mostly an illegal address", PROGRAM),
    32: Xid("a corrupted push buffer", DEVICE),
    38: Xid("the driver's firmware failed", DEVICE),
    43: Xid("the GPU stopped processing for one program, after its own error", AFTER),
    45: Xid("clean-up after a program that ended", AFTER),
    48: Xid("a double-bit memory error (ECC)", DEVICE),
    61: Xid("the GPU's internal microcontroller stopped", DEVICE),
    62: Xid("the GPU's internal microcontroller halted", DEVICE),
    63: Xid("a memory row was marked to be remapped (ECC)", NOTE),
    64: Xid("a memory row could not be remapped (ECC)", DEVICE),
    68: Xid("an exception in the video decoder", PROGRAM),
    69: Xid("an exception in the graphics engine", PROGRAM),
    74: Xid("an error of NVLink", DEVICE),
    79: Xid("the GPU has fallen off the bus", DEVICE),
    92: Xid("many correctable memory errors (ECC)", NOTE),
    94: Xid("a contained memory error (ECC): the programs on this GPU ended", DEVICE),
    95: Xid("an uncontained memory error (ECC)", DEVICE),
    110: Xid("a security fault", DEVICE),
    119: Xid("the GPU's system processor did not answer", DEVICE),
    120: Xid("an error of the GPU's system processor", DEVICE),
    121: Xid("a correctable error between CPU and GPU (C2C)", NOTE),
    136: Xid("an error of the link to the GPU", DEVICE),
    140: Xid("an unrecovered memory error (ECC)", DEVICE),
    143: Xid("the GPU failed to start", DEVICE),
    149: Xid("an error of NVLink (NETIR)", DEVICE),
    151: Xid("a key rotation error", DEVICE),
    154: Xid("the GPU needs a reset or more to go on", AFTER),
    155: Xid("NVLink software failed", DEVICE),
}
UNKNOWN: Final = Xid("an error of the driver", DEVICE)


def xid(number: int | None) -> Xid:
    """Of any number; one that is not in the table is taken for an error of the device."""
    return XIDS.get(number, UNKNOWN) if number is not None else UNKNOWN
