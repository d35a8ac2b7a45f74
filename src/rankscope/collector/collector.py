"""Where the frames of all nodes arrive: decoded, committed, and only then acknowledged."""

from __future__ import annotations

from rankscope.store.store import Batch, Store
from rankscope.wire.frame import Frame, FrameError, decode
from rankscope.wire.spool import Spool


class Collector:
    """Puts frames into a store. A frame that arrives again is acknowledged again and stored once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.damaged = 0
        """Frames that were no frames, or that the store could never take; what they held is lost to it."""

    def accept(self, data: bytes, source: str = "") -> int:
        """Commit one frame as it came over a socket; the highest committed number of its node.

        FrameError: it is no whole frame, send it again. StoreError: not committed, send it again later.
        """
        try:
            frame = decode(data, source)
        except FrameError:
            self.damaged += 1
            raise
        return self._commit(frame)

    def drain(self, spool: Spool) -> int:
        """Commit and forget every pending frame, oldest first; how many.

        A damaged frame is moved aside and counted. When the store refuses (StoreError), the rest stays pending.
        """
        committed = 0
        for number, _ in spool.pending():
            try:
                frame = spool.load(number)
            except FrameError:
                self.damaged += 1
                continue
            try:
                self._commit(frame)
            except ValueError:
                # The store will never take it: it must not stand in the way of all that follow.
                spool.set_aside(number)
                self.damaged += 1
                continue
            spool.done(number)
            committed += 1
        return committed

    def _commit(self, frame: Frame) -> int:
        return self.store.append(Batch(frame.number, frame.node, frame.rows, frame.payloads))
