"""What logged scalars say: which of them is what, and how a curve went."""
