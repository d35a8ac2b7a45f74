"""Comparing what ranks did, where no times are recorded."""
