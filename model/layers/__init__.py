"""The parts of a transformer, in the order the papers build them.

Letters in shape comments: B batch, T new tokens or query length, S source or key length, H query heads, K key/value
heads, D head width.
"""
