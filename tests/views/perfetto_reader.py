"""A reader of Perfetto's native format that shares nothing with the writer: wire format, texts, tracks, slices."""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Slice:
    track: int
    start: int
    name: str
    category: str
    args: dict
    flows: tuple
    end: int | None = None
    depth: int = 0


@dataclass
class Decoded:
    tracks: dict = field(default_factory=dict)
    """uuid -> {name, parent, pid, process_name, labels, unit, order}"""
    slices: list = field(default_factory=list)
    marks: list = field(default_factory=list)
    readings: list = field(default_factory=list)
    """(track, time, value)"""
    disorder: int = 0
    """Events of one track that stand before an earlier one in the file."""

    def on(self, name):
        """Slices of all tracks of that name, by start."""
        mine = {uuid for uuid, track in self.tracks.items() if track["name"] == name}
        return sorted((s for s in self.slices if s.track in mine), key=lambda s: (s.start, s.depth))

    def path(self, uuid):
        """Names from the top down to a track."""
        track = self.tracks[uuid]
        return (*(self.path(track["parent"]) if track["parent"] else ()), track["name"])

    def chains(self):
        """Flow id -> its slices in the order of time."""
        found = defaultdict(list)
        for one in sorted(self.slices, key=lambda s: s.start):
            for id, _ in one.flows:
                found[id].append(one)
        return found


def fields(data):
    """(field number, value) of a message; int for numbers, bytes for everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            value, at = data[at : at + 8], at + 8
        elif kind == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size, "a message is cut off"
        else:
            raise AssertionError(f"wire type {kind} is not used here")
        yield number, value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        assert shift < 70, "a varint is too long"


def decode(data):
    out = Decoded()
    texts = {1: {}, 2: {}, 3: {}, 29: {}}
    events = []
    last = {}
    for position, (number, packet) in enumerate(fields(data)):
        assert number == 1
        parts = defaultdict(list)
        for key, value in fields(packet):
            parts[key].append(value)
        assert parts[10] == [1], "every packet names its sequence"
        if position == 0:
            assert parts[13] == [1], "the first packet clears the state"
        for message in parts[12]:
            for table, entry in fields(message):
                got = dict(fields(entry))
                assert got[1] not in texts[table]
                texts[table][got[1]] = got[2].decode()
        for message in parts[60]:
            _track(out, message)
        for message in parts[11]:
            (time,) = parts[8]
            event = _event(message, texts, out)
            out.disorder += time < last.get(event["track"], 0)
            last[event["track"]] = time
            events.append((time, event))
    _stack(out, events)
    return out


def _track(out, message):
    got = defaultdict(list)
    for key, value in fields(message):
        got[key].append(value)
    (uuid,) = got[1]
    assert uuid not in out.tracks
    track = {"name": got[2][0].decode(), "parent": got[5][0] if got[5] else 0, "order": got[12][0], "pid": None}
    assert track["parent"] == 0 or track["parent"] in out.tracks, "a track comes before what stands under it"
    track["unit"] = None
    for process in got[3]:
        known = dict(fields(process))
        track["pid"], track["process_name"] = known[1], known[6].decode()
        track["labels"] = [value.decode() for key, value in fields(process) if key == 8]
    for counter in got[8]:
        track["unit"] = dict(fields(counter))[6].decode()
    out.tracks[uuid] = track


def _event(message, texts, out):
    event = {"args": {}, "flows": []}
    for key, value in fields(message):
        if key == 9:
            event["type"] = value
        elif key == 11:
            event["track"] = value
            assert value in out.tracks, "events come after their track"
        elif key == 3:
            event["category"] = texts[1][value]
        elif key == 10:
            event["name"] = texts[2][value]
        elif key in (47, 48):
            event["flows"].append((struct.unpack("<Q", value)[0], key == 48))
        elif key == 44:
            event["value"] = struct.unpack("<d", value)[0]
        elif key == 4:
            name, given = _argument(value, texts)
            assert name not in event["args"]
            event["args"][name] = given
        else:
            raise AssertionError(f"field {key} of an event is not expected")
    return event


def _argument(message, texts):
    got = dict(fields(message))
    name = texts[3][got[1]]
    if 17 in got:
        return name, texts[29][got[17]]
    if 5 in got:
        return name, struct.unpack("<d", got[5])[0]
    return name, got[4] - (1 << 64) if got[4] >> 63 else got[4]


def _stack(out, events):
    """Slices as Perfetto makes them: events by time, in file order where times are equal; an end closes the newest."""
    open_slices = defaultdict(list)
    for time, event in sorted(events, key=lambda pair: pair[0]):
        stack = open_slices[event["track"]]
        if event["type"] == 1:
            flows = tuple(event["flows"])
            made = Slice(event["track"], time, event["name"], event["category"], event["args"], flows, None, len(stack))
            stack.append(made)
            out.slices.append(made)
        elif event["type"] == 2:
            stack.pop().end = time
        elif event["type"] == 3:
            out.marks.append(Slice(event["track"], time, event["name"], event["category"], event["args"], ()))
        else:
            out.readings.append((event["track"], time, event["value"]))
    assert not any(open_slices.values()), "every slice ends"
