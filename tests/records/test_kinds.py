from rankscope.records.kinds import KINDS
from rankscope.records.record import sources, unpack
from rankscope.records.slot import ROW_BYTES, SLOT_BYTES


def test_a_slot_has_64_bytes_and_a_row_72():
    assert (SLOT_BYTES, ROW_BYTES) == (64, 72)


def test_fields_of_a_kind_share_no_bit_of_a_word():
    for kind in KINDS.values():
        used = {}
        for name, source in sources(kind).items():
            mask = ((1 << source.bits) - 1) << source.shift
            assert not used.get(source.word, 0) & mask, f"{kind.kind}.{name} overlaps"
            used[source.word] = used.get(source.word, 0) | mask


def test_every_field_says_what_it_means():
    assert [f"{k.kind}.{n}" for k in KINDS.values() for n, s in sources(k).items() if not s.doc] == []


def test_unpack_takes_the_bits_of_the_field():
    group = sources(KINDS[30])["group"]

    assert unpack((7 << 48) | 123, group) == 7
